#pragma once

// Four float32 lanes with SSE4.2 (x86-64-v2, the floor). No fused multiply-add: fma() rounds twice.

#include <immintrin.h>

#include "kernels/tensor.h"

namespace troupe::cpu::sse {

struct Vec {
  __m128 r;
};
inline constexpr int kLanes = 4;

inline Vec broadcast(float x) {
  return {_mm_set1_ps(x)};
}
inline Vec load(const float* p) {
  return {_mm_loadu_ps(p)};
}
inline Vec load(const BFloat16* p) {
  const __m128i bits = _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return {_mm_castsi128_ps(_mm_slli_epi32(bits, 16))};
}
// Two vectors of a row in the order in which they are cheapest to load, which is the row's own here.
template <typename T>
inline void load_two(const T* p, Vec& a, Vec& b) {
  a = load(p);
  b = load(p + kLanes);
}
template <typename T>
inline void from_twos(Vec&, Vec&) {}
inline Vec load_half(const uint16_t* p) {
  return {_mm_setr_ps(half_to_float(p[0]), half_to_float(p[1]), half_to_float(p[2]), half_to_float(p[3]))};
}
inline void store(float* p, Vec a) {
  _mm_storeu_ps(p, a.r);
}
inline Vec add(Vec a, Vec b) {
  return {_mm_add_ps(a.r, b.r)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm_sub_ps(a.r, b.r)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm_mul_ps(a.r, b.r)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm_div_ps(a.r, b.r)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm_max_ps(a.r, b.r)};
}  // b where either is NaN
inline Vec min(Vec a, Vec b) {
  return {_mm_min_ps(a.r, b.r)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return add(mul(a, b), c);
}
inline Vec round(Vec a) {
  return {_mm_round_ps(a.r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

// a · 2ⁿ for integral n in [-126, 127]
inline Vec scale_by_power(Vec a, Vec n) {
  const __m128i exponent = _mm_slli_epi32(_mm_add_epi32(_mm_cvtps_epi32(n.r), _mm_set1_epi32(127)), 23);
  return {_mm_mul_ps(a.r, _mm_castsi128_ps(exponent))};
}
// a where x >= limit or x is NaN, else 0
inline Vec zero_below(Vec a, Vec x, Vec limit) {
  return {_mm_and_ps(_mm_cmpnlt_ps(x.r, limit.r), a.r)};
}

inline void store(BFloat16* p, Vec a) {
  const __m128i bits = _mm_castps_si128(a.r);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i rounded = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
  const __m128i quiet = _mm_or_si128(bits, _mm_set1_epi32(0x400000));
  const __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(a.r, a.r));
  const __m128i top = _mm_srli_epi32(_mm_blendv_epi8(rounded, quiet, nan), 16);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi32(top, top));
}

inline float sum(Vec a) {
  const __m128 pairs = _mm_add_ps(a.r, _mm_movehl_ps(a.r, a.r));
  return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
}
inline float largest(Vec a) {
  const __m128 pairs = _mm_max_ps(a.r, _mm_movehl_ps(a.r, a.r));
  return _mm_cvtss_f32(_mm_max_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
}
// Lane i of the result is the sum of all lanes of rows[i].
inline Vec sum_each(const Vec* rows) {
  return {_mm_hadd_ps(_mm_hadd_ps(rows[0].r, rows[1].r), _mm_hadd_ps(rows[2].r, rows[3].r))};
}

// Four 32-bit integers, or sixteen bytes.
struct IntVec {
  __m128i r;
};
inline IntVec zero_ints() {
  return {_mm_setzero_si128()};
}
inline IntVec broadcast_int(int32_t x) {
  return {_mm_set1_epi32(x)};
}
inline IntVec load_ints(const void* p) {
  return {_mm_loadu_si128(static_cast<const __m128i*>(p))};
}
inline void store_ints(int32_t* p, IntVec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), a.r);
}
inline Vec to_floats(IntVec a) {
  return {_mm_cvtepi32_ps(a.r)};
}
inline IntVec to_ints(Vec a) {  // to nearest even
  return {_mm_cvtps_epi32(a.r)};
}
// a - offset · p[…]
inline IntVec without(IntVec a, const int32_t* p, int32_t offset) {
  return {_mm_sub_epi32(a.r, _mm_mullo_epi32(load_ints(p).r, _mm_set1_epi32(offset)))};
}
// sums + the products of four bytes each: x is 128 + value, |value| and |weight| at most 127.
inline IntVec dot_signed(IntVec sums, IntVec x, IntVec weights) {
  const __m128i value = _mm_xor_si128(x.r, _mm_set1_epi8(-128));
  const __m128i pairs = _mm_maddubs_epi16(_mm_abs_epi8(value), _mm_sign_epi8(weights.r, value));
  return {_mm_add_epi32(sums.r, _mm_madd_epi16(pairs, _mm_set1_epi16(1)))};
}

}  // namespace troupe::cpu::sse
