#pragma once

// CUDA's arithmetic that <math.h> has not. What the device approximates is exact to the last place or two
// here: a test's tolerance is that of the device.

#include <math.h>

#include <bit>
#include <cstdint>
#include <type_traits>

// glibc declares these four names for itself, with C linkage and noexcept; nothing of it calls ours.
inline float __expf(float x) noexcept {
  return expf(x);
}
inline float __logf(float x) noexcept {
  return logf(x);
}
inline float __sinf(float x) noexcept {
  return sinf(x);
}
inline float __cosf(float x) noexcept {
  return cosf(x);
}

inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}
inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fsub_rn(float x, float y) {
  return x - y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return fmaf(x, y, z);
}
inline float __saturatef(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;  // of a NaN: 0
}

inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(lrintf(x));
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}

// One type or two, as in CUDA; floats as fmin and fmax, which leave out a NaN.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(A a, B b) {
  using Common = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<Common>) {
    return fmin(static_cast<Common>(a), static_cast<Common>(b));
  } else {
    return static_cast<Common>(b) < static_cast<Common>(a) ? static_cast<Common>(b) : static_cast<Common>(a);
  }
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(A a, B b) {
  using Common = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<Common>) {
    return fmax(static_cast<Common>(a), static_cast<Common>(b));
  } else {
    return static_cast<Common>(a) < static_cast<Common>(b) ? static_cast<Common>(b) : static_cast<Common>(a);
  }
}
