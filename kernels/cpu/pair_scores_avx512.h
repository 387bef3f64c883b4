#pragma once

// Attention scores of bfloat16 queries and keys with AVX512-BF16, whose dot instruction takes pairs: each
// 32-bit lane multiplies two bfloat16 by two and adds both products to its float32. Keys go into lanes: 16
// keys' pairs p stand side by side in one register, so a score is one lane's chain over p ascending, without
// horizontal sums and independent of which other rows are computed. The price is a transposition of the tile,
// 8 shuffles a key of 64 (float32 would need 16), shared by all rows. On a Zen 5 core, keys in cache, one key
// of one head costs 7.2 ns with 1 row and 13.0 with 7, against FloatScores' 8.6 and 17.6.
//
// Included by target_avx512.cc, after the bodies, under a target that adds avx512bf16.
// Scratch: s.keys holds (key groups of 16, C/2 pairs, 16 keys) pairs; C is a multiple of 32.

namespace troupe::cpu::avx512 {

struct PairScores {
  static constexpr int64_t kGroups = kAttentionTileKeys / kLanes;
  static constexpr int64_t kRowsMax = 4;    // together
  static constexpr int64_t kPacePairs = 8;  // of every key between two calls of pace()

  static void load_queries(const AttentionTile&, const AttentionScratch&) {}  // taken where they lie
  static int64_t steps(const AttentionTile& t, const AttentionScratch&) {
    return 8 * t.head_dim + 2 * t.head_dim * t.queries * t.group;
  }
  static void score(const AttentionTile& t, const AttentionScratch& s, const TileRows& keys, int64_t first,
                    Ahead& ahead) {
    load_keys(t, s, keys, ahead);
    const int64_t rows = t.queries * t.group;
    for (int64_t row = 0; row < rows; row += kRowsMax) {
      const int64_t together = rows - row < kRowsMax ? rows - row : kRowsMax;
      if (together == 4) score_together<4>(t, s, {row, first}, ahead);
      if (together == 3) score_together<3>(t, s, {row, first}, ahead);
      if (together == 2) score_together<2>(t, s, {row, first}, ahead);
      if (together == 1) score_together<1>(t, s, {row, first}, ahead);
    }
  }

  // 16 x 16 elements of 32 bits.
  static void transpose(__m512i* r) {
    __m512i a[16];
    __m512i b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      a[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
      a[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // b[4i + k]: column k of each 128-bit lane, rows 4i .. 4i + 3
      b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
      b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
      b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
      b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {  // columns k, k + 4, k + 8, k + 12 out of the four 128-bit lanes
      const __m512i low01 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x44);
      const __m512i high01 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xee);
      const __m512i low23 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0x44);
      const __m512i high23 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0xee);
      r[k] = _mm512_shuffle_i32x4(low01, low23, 0x88);
      r[k + 4] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
      r[k + 8] = _mm512_shuffle_i32x4(high01, high23, 0x88);
      r[k + 12] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
    }
  }

 private:
  struct Place {
    int64_t row;
    int64_t first;  // key: of the context, or of the tile
  };

  static void load_keys(const AttentionTile& t, const AttentionScratch& s, const TileRows& rows,
                        Ahead& ahead) {
    for (int64_t first = 0; first < rows.count; first += kLanes) {
      for (int64_t c = 0; c < t.head_dim; c += 2 * kLanes) {  // 32 elements of a key: one cache line
        __m512i pairs[kLanes];
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) {
          pairs[j] = _mm512_loadu_si512(rows.keys[first + j] + 2 * c);
        }
        ahead.pace(4 * kLanes);
        transpose(pairs);
        float* out = s.keys + (first * t.head_dim + c * kLanes) / 2;
#pragma GCC unroll 16
        for (int p = 0; p < kLanes; ++p) _mm512_storeu_si512(out + p * kLanes, pairs[p]);
      }
    }
  }

  template <int kRows>
  static void score_together(const AttentionTile& t, const AttentionScratch& s, const Place& place,
                             Ahead& ahead) {
    // The last of the rows sees the most; what the others must not see is masked later.
    const int64_t visible = visible_to(t, place.row + kRows - 1, place.first);
    const int64_t groups = visible <= 0 ? 0 : (visible + kLanes - 1) / kLanes;
    if (groups == kGroups) return score_rows<kRows, kGroups>(t, s, {place.row, 0}, ahead);
    for (int64_t g = 0; g < groups; ++g) score_rows<kRows, 1>(t, s, {place.row, g * kLanes}, ahead);
  }

  // Scaled scores of kRows rows against kCount groups of 16 keys from key `place.first` of the tile on.
  template <int kRows, int kCount>
  static void score_rows(const AttentionTile& t, const AttentionScratch& s, const Place& place,
                         Ahead& ahead) {
    const BFloat16* q[kRows];
    __m512 dots[kRows][kCount];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      q[i] = query<BFloat16>(t, place.row + i);
#pragma GCC unroll 4
      for (int g = 0; g < kCount; ++g) dots[i][g] = _mm512_setzero_ps();
    }
    const float* keys = s.keys + place.first * t.head_dim / 2;
    for (int64_t p = 0; p < t.head_dim / 2; ++p) {
      if (p % kPacePairs == 0) ahead.pace(kCount * kRows * kPacePairs);
      __m512bh key[kCount];
#pragma GCC unroll 4
      for (int g = 0; g < kCount; ++g) {
        key[g] = (__m512bh)_mm512_loadu_ps(keys + (g * t.head_dim / 2 + p) * kLanes);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        int32_t pair;
        __builtin_memcpy(&pair, q[i] + 2 * p, sizeof(pair));
        const __m512bh query = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
        for (int g = 0; g < kCount; ++g) dots[i][g] = _mm512_dpbf16_ps(dots[i][g], query, key[g]);
      }
    }
    const __m512 scale = _mm512_set1_ps(t.scale);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      float* out = s.scores + (place.row + i) * kAttentionTileKeys + place.first;
#pragma GCC unroll 4
      for (int g = 0; g < kCount; ++g) _mm512_storeu_ps(out + g * kLanes, _mm512_mul_ps(dots[i][g], scale));
    }
  }
};

inline void attention_pairs(const AttentionTile& t) {
  if (t.dtype == DType::kBFloat16 && t.head_dim % (2 * kLanes) == 0) {
    attention_as<BFloat16, PairScores>(t);
  } else {
    attention(t);
  }
}

}  // namespace troupe::cpu::avx512
