#pragma once

// Attention scores of bfloat16 queries and keys with AMX, whose tile registers hold 16 rows of 64 bytes and
// multiply 16 keys by 16 queries, 32 elements of each, in one instruction. Keys are taken as they lie in
// memory, so nothing is transposed but the queries, once an item, and the 16 x 16 scores.
//
//   score = Σ over blocks of 32 elements, ascending, of (Σ even elements' products + Σ odd elements'
//   products)
//
// A score's operations are its own: rows and keys beside it in the registers change no bit of it.
//
// Included by target_avx512.cc under the target of tile_amx.h.
// Scratch: s.q holds (rows / 16, C / 32 blocks, 16 pairs, 16 rows) pairs; C is a multiple of 32. s.keys holds
// the tile's keys where a block's keys are no whole groups of 16.

#include "kernels/cpu/tile_amx.h"

namespace troupe::cpu::avx512 {

struct TileScores {
  static constexpr int64_t kSide = Tiles::kSide;  // keys or queries of a register
  static constexpr int64_t kGroups = kAttentionTileKeys / kSide;
  static constexpr int64_t kBlock = Tiles::kDepth;             // elements of a register's row
  static constexpr int64_t kBlockFloats = kSide * kBlock / 2;  // of queries, as s.q holds them

  static void load_queries(const AttentionTile& t, const AttentionScratch& s) {
    const int64_t rows = t.queries * t.group;
    float* out = s.q;
    for (int64_t row = 0; row < rows; row += kSide) {
      for (int64_t c = 0; c < t.head_dim; c += kBlock, out += kBlockFloats) {
        __m512i pairs[kSide];
#pragma GCC unroll 16
        for (int i = 0; i < kSide; ++i) {
          pairs[i] =
              row + i < rows ? _mm512_loadu_si512(query<BFloat16>(t, row + i) + c) : _mm512_setzero_si512();
        }
        PairScores::transpose(pairs);
#pragma GCC unroll 16
        for (int p = 0; p < kSide; ++p) _mm512_storeu_si512(out + p * kSide, pairs[p]);
      }
    }
  }

  static int64_t steps(const AttentionTile& t, const AttentionScratch&) {
    const int64_t sides = (t.queries * t.group + kSide - 1) / kSide;
    return sides * kGroups * (kProductSteps * t.head_dim / kBlock + kStoreSteps);
  }

  static void score(const AttentionTile& t, const AttentionScratch& s, const TileRows& keys, int64_t first,
                    Ahead& ahead) {
    Groups groups;
    find_groups(t, s, keys, groups);
    Tiles::order_memory();
    const int64_t rows = t.queries * t.group;
    const float* queries = s.q;
    for (int64_t row = 0; row < rows; row += kSide, queries += t.head_dim / kBlock * kBlockFloats) {
      // The last of the rows sees the most; what the others must not see is masked later.
      const int64_t last = row + kSide < rows ? row + kSide - 1 : rows - 1;
      const int64_t visible = visible_to(t, last, first);
      const int64_t count = visible <= 0 ? 0 : (visible + kSide - 1) / kSide;
      alignas(64) float dots[kGroups][kSide * kSide];  // (16 keys, 16 queries) each
      if (count == kGroups) {
        multiply_all(t, queries, groups, dots, ahead);
      } else {
        for (int64_t g = 0; g < count; ++g) multiply(t, queries, groups.keys[g], dots[g]);
      }
      Tiles::order_memory();
      for (int64_t g = 0; g < count; ++g) {
        store_scores(t, dots[g], last - row + 1, s.scores + row * kAttentionTileKeys + g * kSide, ahead);
      }
    }
  }

 private:
  static constexpr int64_t kProductSteps = 16;  // see Ahead
  static constexpr int64_t kStoreSteps = 64;

  struct Groups {
    const char* keys[kGroups];  // 16 of them, 2 · C bytes apart
  };

  static void find_groups(const AttentionTile& t, const AttentionScratch& s, const TileRows& keys,
                          Groups& groups) {
    if (t.block_size % kSide == 0) {
      for (int64_t g = 0; g < kGroups; ++g) groups.keys[g] = keys.keys[g * kSide];
      return;
    }
    char* out = reinterpret_cast<char*>(s.keys);
    const int64_t row_bytes = 2 * t.head_dim;
    for (int64_t j = 0; j < kAttentionTileKeys; ++j) {
      __builtin_memcpy(out + j * row_bytes, keys.keys[j], static_cast<size_t>(row_bytes));
    }
    for (int64_t g = 0; g < kGroups; ++g) groups.keys[g] = out + g * kSide * row_bytes;
  }

  // 16 queries against 16 keys.
  static void multiply(const AttentionTile& t, const float* queries, const char* keys, float* dots) {
    _tile_zero(0);
    for (int64_t b = 0; b < t.head_dim / kBlock; ++b) {
      _tile_loadd(6, queries + b * kBlockFloats, 64);
      _tile_loadd(4, keys + 64 * b, 2 * t.head_dim);
      _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, dots, 64);
  }

  // The same for the whole tile.
  static void multiply_all(const AttentionTile& t, const float* queries, const Groups& groups,
                           float (*dots)[kSide * kSide], Ahead& ahead) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t b = 0; b < t.head_dim / kBlock; ++b) {
      _tile_loadd(6, queries + b * kBlockFloats, 64);
      _tile_loadd(4, groups.keys[0] + 64 * b, 2 * t.head_dim);
      _tile_dpbf16ps(0, 4, 6);
      ahead.pace(kProductSteps);
      _tile_loadd(5, groups.keys[1] + 64 * b, 2 * t.head_dim);
      _tile_dpbf16ps(1, 5, 6);
      ahead.pace(kProductSteps);
      _tile_loadd(4, groups.keys[2] + 64 * b, 2 * t.head_dim);
      _tile_dpbf16ps(2, 4, 6);
      ahead.pace(kProductSteps);
      _tile_loadd(5, groups.keys[3] + 64 * b, 2 * t.head_dim);
      _tile_dpbf16ps(3, 5, 6);
      ahead.pace(kProductSteps);
    }
    _tile_stored(0, dots[0], 64);
    _tile_stored(1, dots[1], 64);
    _tile_stored(2, dots[2], 64);
    _tile_stored(3, dots[3], 64);
  }

  // Scales (16 keys, 16 queries) of scores and stores the first `rows` queries', kAttentionTileKeys apart.
  static void store_scores(const AttentionTile& t, const float* dots, int64_t rows, float* out,
                           Ahead& ahead) {
    __m512i r[kSide];
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) r[i] = _mm512_loadu_si512(dots + i * kSide);
    ahead.pace(kStoreSteps / 2);
    PairScores::transpose(r);
    ahead.pace(kStoreSteps / 2);
    const __m512 scale = _mm512_set1_ps(t.scale);
    for (int64_t i = 0; i < rows; ++i) {
      _mm512_storeu_ps(out + i * kAttentionTileKeys, _mm512_mul_ps(_mm512_castsi512_ps(r[i]), scale));
    }
  }
};

}  // namespace troupe::cpu::avx512
