#pragma once

// CUDA's half, as far as our kernels use it: weights are read from it.

#include <bit>
#include <cstdint>

struct __half_raw {
  unsigned short x;
};

struct __half {
  __half() = default;
  constexpr __half(const __half_raw& raw) : bits(raw.x) {}
  constexpr operator __half_raw() const { return {bits}; }
  unsigned short bits;
};
using half = __half;

constexpr float __half2float(__half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t magnitude = value.bits & 0x7fff;
  if (magnitude >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000u | magnitude << 13);  // infinity, NaN
  // Exponents are those of a float less 112, which the product puts back, exactly, subnormal halves included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
}
constexpr unsigned short __half_as_ushort(__half value) {
  return value.bits;
}
constexpr __half __ushort_as_half(unsigned short bits) {
  return __half_raw{bits};
}
