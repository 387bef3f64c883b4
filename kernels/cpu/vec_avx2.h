#pragma once

// Eight float32 lanes with AVX2, FMA and F16C. Included by target_avx2.cc under that target only.

#include <immintrin.h>

#include "kernels/tensor.h"

namespace troupe::cpu::avx2 {

struct Vec {
  __m256 r;
};
inline constexpr int kLanes = 8;

inline Vec broadcast(float x) {
  return {_mm256_set1_ps(x)};
}
inline Vec load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline Vec load(const BFloat16* p) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16))};
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
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.r);
}
inline Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.r, b.r)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.r, b.r)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.r, b.r)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.r, b.r)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.r, b.r)};
}  // b where either is NaN
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.r, b.r)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.r, b.r, c.r)};
}
inline Vec round(Vec a) {
  return {_mm256_round_ps(a.r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

// a · 2ⁿ for integral n in [-126, 127]
inline Vec scale_by_power(Vec a, Vec n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.r), _mm256_set1_epi32(127));
  return {_mm256_mul_ps(a.r, _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23)))};
}
// a where x >= limit or x is NaN, else 0
inline Vec zero_below(Vec a, Vec x, Vec limit) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.r, limit.r, _CMP_NLT_UQ), a.r)};
}

inline void store(BFloat16* p, Vec a) {
  const __m256i bits = _mm256_castps_si256(a.r);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.r, a.r, _CMP_UNORD_Q));
  const __m256i top = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

inline __m128 halves_added(Vec a) {
  return _mm_add_ps(_mm256_castps256_ps128(a.r), _mm256_extractf128_ps(a.r, 1));
}
inline float sum(Vec a) {
  const __m128 four = halves_added(a);
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float largest(Vec a) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.r), _mm256_extractf128_ps(a.r, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// Lane i of the result is the sum of all lanes of rows[i].
inline Vec sum_each(const Vec* rows) {
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(rows[0].r, rows[1].r), _mm256_hadd_ps(rows[2].r, rows[3].r));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(rows[4].r, rows[5].r), _mm256_hadd_ps(rows[6].r, rows[7].r));
  return {_mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31))};
}

// Eight 32-bit integers, or thirty-two bytes.
struct IntVec {
  __m256i r;
};
inline IntVec zero_ints() {
  return {_mm256_setzero_si256()};
}
inline IntVec broadcast_int(int32_t x) {
  return {_mm256_set1_epi32(x)};
}
inline IntVec load_ints(const void* p) {
  return {_mm256_loadu_si256(static_cast<const __m256i*>(p))};
}
inline void store_ints(int32_t* p, IntVec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.r);
}
inline Vec to_floats(IntVec a) {
  return {_mm256_cvtepi32_ps(a.r)};
}
inline IntVec to_ints(Vec a) {  // to nearest even
  return {_mm256_cvtps_epi32(a.r)};
}
// a - offset · p[…]
inline IntVec without(IntVec a, const int32_t* p, int32_t offset) {
  return {_mm256_sub_epi32(a.r, _mm256_mullo_epi32(load_ints(p).r, _mm256_set1_epi32(offset)))};
}
// sums + the products of four bytes each: x is 128 + value, |value| and |weight| at most 127.
inline IntVec dot_signed(IntVec sums, IntVec x, IntVec weights) {
  const __m256i value = _mm256_xor_si256(x.r, _mm256_set1_epi8(-128));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(weights.r, value));
  return {_mm256_add_epi32(sums.r, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
}

}  // namespace troupe::cpu::avx2
