#pragma once

// Sixteen float32 lanes with AVX-512 F, BW, DQ and VL. Included by target_avx512.cc under that target only.

#include <immintrin.h>

#include "kernels/tensor.h"

namespace troupe::cpu::avx512 {

struct Vec {
  __m512 r;
};
inline constexpr int kLanes = 16;

inline Vec broadcast(float x) {
  return {_mm512_set1_ps(x)};
}
inline Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline Vec load(const BFloat16* p) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
}
// Two vectors of a row in the order in which they are cheapest to load: of bfloat16 the even elements and the
// odd ones, a shift and a mask, where a conversion in the row's order takes shuffles.
inline void load_two(const float* p, Vec& a, Vec& b) {
  a = load(p);
  b = load(p + kLanes);
}
inline void load_two(const BFloat16* p, Vec& even, Vec& odd) {
  const __m512i bits = _mm512_loadu_si512(p);
  even = {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
  odd = {_mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000))))};
}
// Back to the row's order.
template <typename T>
inline void from_twos(Vec& a, Vec& b) {
  if constexpr (sizeof(T) == 2) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512 first = _mm512_permutex2var_ps(a.r, low, b.r);
    b = {_mm512_permutex2var_ps(a.r, _mm512_add_epi32(low, _mm512_set1_epi32(8)), b.r)};
    a = {first};
  }
}
inline Vec load_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store(float* p, Vec a) {
  _mm512_storeu_ps(p, a.r);
}
inline Vec add(Vec a, Vec b) {
  return {_mm512_add_ps(a.r, b.r)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm512_sub_ps(a.r, b.r)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm512_mul_ps(a.r, b.r)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm512_div_ps(a.r, b.r)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.r, b.r)};
}  // b where either is NaN
inline Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.r, b.r)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.r, b.r, c.r)};
}
inline Vec round(Vec a) {
  return {_mm512_roundscale_ps(a.r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

// a · 2ⁿ for integral n in [-126, 127]
inline Vec scale_by_power(Vec a, Vec n) {
  return {_mm512_scalef_ps(a.r, n.r)};
}
// a where x >= limit or x is NaN, else 0
inline Vec zero_below(Vec a, Vec x, Vec limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.r, limit.r, _CMP_NLT_UQ), a.r)};
}

inline void store(BFloat16* p, Vec a) {
  const __m512i bits = _mm512_castps_si512(a.r);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.r, a.r, _CMP_UNORD_Q);
  const __m512i top = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(top));
}

inline float sum(Vec a) {
  return _mm512_reduce_add_ps(a.r);
}
inline float largest(Vec a) {
  return _mm512_reduce_max_ps(a.r);
}

// Lane i of the result is the sum of all lanes of rows[i]: a transposition that adds as it goes. Each level
// halves the number of vectors: 16 rows of 16 lanes become 8 of (8 | 8), …, until one holds all sixteen sums.
inline Vec sum_each(const Vec* rows) {
  __m512 eight[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // within 128-bit lanes: [r(2i) r(2i) r(2i+1) r(2i+1)]
    const __m512 low = _mm512_shuffle_ps(rows[2 * i].r, rows[2 * i + 1].r, 0x44);
    const __m512 high = _mm512_shuffle_ps(rows[2 * i].r, rows[2 * i + 1].r, 0xee);
    eight[i] = _mm512_add_ps(low, high);
  }
  __m512 four[4];
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {  // [r(4i) r(4i+1) r(4i+2) r(4i+3)] in each 128-bit lane
    const __m512 even = _mm512_shuffle_ps(eight[2 * i], eight[2 * i + 1], 0x88);
    const __m512 odd = _mm512_shuffle_ps(eight[2 * i], eight[2 * i + 1], 0xdd);
    four[i] = _mm512_add_ps(even, odd);
  }
  __m512 two[2];
#pragma GCC unroll 8
  for (int i = 0; i < 2; ++i) {  // 128-bit lanes: [rows 8i.. | 8i.. | 8i+4.. | 8i+4..]
    const __m512 low = _mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0x44);
    const __m512 high = _mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0xee);
    two[i] = _mm512_add_ps(low, high);
  }
  const __m512 even = _mm512_shuffle_f32x4(two[0], two[1], 0x88);
  const __m512 odd = _mm512_shuffle_f32x4(two[0], two[1], 0xdd);
  return {_mm512_add_ps(even, odd)};
}

// Sixteen 32-bit integers, or sixty-four bytes.
struct IntVec {
  __m512i r;
};
inline IntVec zero_ints() {
  return {_mm512_setzero_si512()};
}
inline IntVec broadcast_int(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline IntVec load_ints(const void* p) {
  return {_mm512_loadu_si512(p)};
}
inline void store_ints(int32_t* p, IntVec a) {
  _mm512_storeu_si512(p, a.r);
}
inline Vec to_floats(IntVec a) {
  return {_mm512_cvtepi32_ps(a.r)};
}
inline IntVec to_ints(Vec a) {  // to nearest even
  return {_mm512_cvtps_epi32(a.r)};
}
// a - offset · p[…]
inline IntVec without(IntVec a, const int32_t* p, int32_t offset) {
  return {_mm512_sub_epi32(a.r, _mm512_mullo_epi32(load_ints(p).r, _mm512_set1_epi32(offset)))};
}
// sums + the products of four bytes each: x is 128 + value, |value| and |weight| at most 127.
inline IntVec dot_signed(IntVec sums, IntVec x, IntVec weights) {
  const __m512i value = _mm512_xor_si512(x.r, _mm512_set1_epi8(-128));
  const __mmask64 negative = _mm512_movepi8_mask(value);
  const __m512i turned = _mm512_mask_sub_epi8(weights.r, negative, _mm512_setzero_si512(), weights.r);
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(value), turned);
  return {_mm512_add_epi32(sums.r, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}

}  // namespace troupe::cpu::avx512
