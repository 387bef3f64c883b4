#pragma once

// bfloat16 products with AVX512-BF16, from one row (decode) to hundreds (prefill) over one layout: panels of
// 64 output features, pairs of k side by side, so that a dot instruction multiplies a broadcast pair of x by
// the pairs of 16 features. out[m][n] is one chain of them over k ascending, whatever else is computed: a
// panel is taken in stretches of k that stay in the L1 cache while all rows pass over them, and between two
// stretches a chain rests in memory as the float32 it is.
//
// One row reads every weight once, front to back, as fast as memory gives it; the read runs ahead by
// kPairAhead (the hardware's own prefetcher starts anew at every page). kPairRows × 4 accumulators fill the
// registers; a step of k then loads 4 vectors and kPairRows pairs for 4 · kPairRows dots.
//
// Included by target_avx512.cc, after the bodies, under a target that adds avx512bf16.

namespace troupe::cpu::avx512 {

inline constexpr int kPairRows = 6;
inline constexpr int64_t kPairStretch = 256;  // of k: 32 KiB of a panel
inline constexpr int64_t kPairAhead = 4096;   // bytes
static_assert(kPanelVectors * kLanes == kPanelColumns);

// Steps [begin, end) of k / 2 for kRows rows from row m on.
struct PairStretch {
  int64_t begin;
  int64_t end;
  bool first;  // the sums start at zero
  bool last;   // the results are written
};

// The last pair of a row of odd depth: what follows it in memory is another row's.
inline int32_t pair_at(const BFloat16* row, int64_t p, int64_t depth) {
  int32_t pair = 0;
  __builtin_memcpy(&pair, row + 2 * p, 2 * p + 1 < depth ? 4 : 2);
  return pair;
}

template <int kRows>
inline void load_sums(const PanelProduct& product, int64_t m, const PairStretch& stretch, __m512 (*sums)[4]) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sums[i][v] = stretch.first ? _mm512_setzero_ps()
                                 : _mm512_load_ps(product.sums + (m + i) * kPanelColumns + v * kLanes);
    }
  }
}

template <int kRows>
inline void put_sums(const PanelProduct& product, int64_t m, const PairStretch& stretch,
                     const __m512 (*sums)[4]) {
  for (int i = 0; i < kRows; ++i) {
    if (stretch.last) {
      const Vec row[4] = {{sums[i][0]}, {sums[i][1]}, {sums[i][2]}, {sums[i][3]}};
      finish_panel_row<4>(product.out, m + i, row);
      continue;
    }
    for (int v = 0; v < 4; ++v)
      _mm512_store_ps(product.sums + (m + i) * kPanelColumns + v * kLanes, sums[i][v]);
  }
}

// kAhead: this is the pass that brings the panel from memory.
template <int kRows, bool kAhead>
inline void pair_rows(const PanelProduct& product, int64_t m, const PairStretch& stretch) {
  const char* panel = static_cast<const char*>(product.panel);
  const BFloat16* x = static_cast<const BFloat16*>(product.x) + m * product.depth;
  __m512 sums[kRows][4];
  load_sums<kRows>(product, m, stretch, sums);
  const int64_t whole = stretch.end < product.depth / 2 ? stretch.end : product.depth / 2;
  const auto step = [&](int64_t p, auto pair_of) {
    __m512bh weights[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const char* at = panel + p * 256 + v * 64;
      weights[v] = (__m512bh)_mm512_loadu_ps(at);
      if (kAhead) _mm_prefetch(at + kPairAhead, _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(pair_of(x + i * product.depth, p));
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], pair, weights[v]);
    }
  };
  for (int64_t p = stretch.begin; p < whole; ++p) {
    step(p, [](const BFloat16* row, int64_t at) {
      int32_t pair;
      __builtin_memcpy(&pair, row + 2 * at, 4);
      return pair;
    });
  }
  for (int64_t p = whole; p < stretch.end; ++p) {  // half a pair, where the depth is odd
    step(p, [&](const BFloat16* row, int64_t at) { return pair_at(row, at, product.depth); });
  }
  put_sums<kRows>(product, m, stretch, sums);
}

template <bool kAhead>
inline void pair_rest(const PanelProduct& product, int64_t m, const PairStretch& stretch) {
  switch (product.rows - m) {
    case 1:
      return pair_rows<1, kAhead>(product, m, stretch);
    case 2:
      return pair_rows<2, kAhead>(product, m, stretch);
    case 3:
      return pair_rows<3, kAhead>(product, m, stretch);
    case 4:
      return pair_rows<4, kAhead>(product, m, stretch);
    case 5:
      return pair_rows<5, kAhead>(product, m, stretch);
    default:
      return pair_rows<6, kAhead>(product, m, stretch);
  }
}

inline void pair_product(const PanelProduct& product) {
  const int64_t pairs = (product.depth + 1) / 2;
  const bool few = product.rows <= kPairRows;
  const int64_t length = few ? pairs : kPairStretch / 2;
  for (int64_t begin = 0; begin < pairs; begin += length) {
    const int64_t end = begin + length < pairs ? begin + length : pairs;
    const PairStretch stretch{begin, end, begin == 0, end == pairs};
    pair_rest<true>(product, 0, stretch);
    for (int64_t m = kPairRows; m < product.rows; m += kPairRows) pair_rest<false>(product, m, stretch);
  }
}

}  // namespace troupe::cpu::avx512
