#pragma once

// CUDA's bfloat16, as far as our kernels use it: conversions, no arithmetic.

#include <bit>
#include <cstdint>

#include "tests/kernels/emulated/vectors.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct __nv_bfloat16 {
  __nv_bfloat16() = default;  // trivial: shared memory holds them
  constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : bits(raw.x) {}
  // To the nearest, ties to even; a NaN becomes the device's one NaN.
  constexpr __nv_bfloat16(float value) : bits(rounded(value)) {}
  constexpr operator __nv_bfloat16_raw() const { return {bits}; }
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  unsigned short bits;

 private:
  static constexpr unsigned short rounded(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<unsigned short>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat162() = default;
  constexpr __nv_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) : x(low), y(high) {}
  __nv_bfloat16 x, y;
};

constexpr __nv_bfloat16 __float2bfloat16(float value) {
  return {value};
}
constexpr __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {value};
}
constexpr float __bfloat162float(__nv_bfloat16 value) {
  return value;
}
constexpr __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {x, y};
}
constexpr __nv_bfloat162 __float22bfloat162_rn(float2 value) {
  return {value.x, value.y};
}
constexpr float2 __bfloat1622float2(__nv_bfloat162 value) {
  return {value.x, value.y};
}
constexpr __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
  return {x, y};
}
constexpr float __low2float(__nv_bfloat162 value) {
  return value.x;
}
constexpr float __high2float(__nv_bfloat162 value) {
  return value.y;
}
constexpr unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
  return value.bits;
}
constexpr __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16_raw{bits};
}
