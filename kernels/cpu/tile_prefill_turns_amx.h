#pragma once

// The products of a prefill's attention (tile_prefill_amx.h), a few at a time, and the memory they share with
// what goes on beside them.
//
// Included by target_avx512.cc, after tile_amx.h, under its target.

#include "kernels/cpu/tile_scores_amx.h"

namespace troupe::cpu::avx512 {

// The scratch of one item, all 64-byte aligned.
struct PrefillScratch {
  static constexpr int64_t kTileFloats = kAttentionTileKeys * kLanes;  // (tile keys, 16 rows)

  explicit PrefillScratch(const AttentionTile& t)
      : blocks((t.queries * t.group + kLanes - 1) / kLanes),
        state_floats((2 + t.head_dim) * kLanes),
        q(t.scratch),
        whole(q + blocks * kLanes * t.head_dim / 2),
        chunk(whole + blocks * state_floats),
        values(chunk + blocks * state_floats),
        products(values + kAttentionTileKeys * t.head_dim) {
    float* at = products + t.head_dim * kLanes;
    for (float** buffers : {scores, high, low}) {
      for (int i = 0; i < 2; ++i, at += kTileFloats) buffers[i] = at;
    }
  }

  int64_t blocks;        // of 16 rows
  int64_t state_floats;  // of a block
  float* q;              // (blocks, C / 32, 16 pairs, 16 rows) pairs
  // (blocks) states of (16 rows) largest scores, (16) Σ exp(s - largest), (C, 16) Σ exp(s - largest) · v
  float* whole;     // all chunks so far
  float* chunk;     // the one in work
  float* values;    // (4 groups, C / 16, 16 columns, 16 keys) pairs of a zero and a value
  float* products;  // (C, 16 rows) of a tile
  // Alternating: one of the block in work, one of its neighbour in products.
  float* scores[2];  // (tile keys, 16 rows)
  float* high[2];    // likewise, upper halves of weights
  float* low[2];     // their rests'

  // A state's columns: the even ones of each 32 come before the odd.
  float* state(float* states, int64_t block) const { return states + block * state_floats; }
};

// A tile's products of two blocks of rows, a few at a time.
class PrefillTurns {
 public:
  static constexpr int64_t kGroups = TileScores::kGroups;
  static constexpr int64_t kPassTiles = 4;  // registers of sums
  static constexpr int64_t kRegister = Tiles::kSide * Tiles::kSide;

  PrefillTurns(const AttentionTile& t, const PrefillScratch& s, const TileRows& keys)
      : s_(s),
        columns_(t.head_dim),
        row_bytes_(2 * t.head_dim),
        tiles_(t.head_dim / Tiles::kSide),
        passes_((tiles_ + kPassTiles - 1) / kPassTiles),
        keys_(keys.keys) {}

  // Block `block`'s scores to s.scores[block % 2].
  void ask_scores(int64_t block) {
    queries_ = s_.q + block * columns_ / Tiles::kDepth * TileScores::kBlockFloats;
    scores_ = s_.scores[block % 2];
  }
  // The products of s.high and s.low [block % 2] by the values to s.products.
  void ask_values(int64_t block) {
    high_ = s_.high[block % 2];
    low_ = s_.low[block % 2];
  }

  // The scores of 16 of the tile's keys.
  [[gnu::always_inline]] void score(int64_t group) const {
    if (queries_ == nullptr) return;
    const char* keys = keys_[group * Tiles::kSide];
    _tile_zero(7);
    for (int64_t b = 0; b < columns_ / Tiles::kDepth; ++b) {
      _tile_loadd(4, keys + 64 * b, row_bytes_);
      _tile_loadd(5, queries_ + b * TileScores::kBlockFloats, 64);
      _tile_dpbf16ps(7, 4, 5);
    }
    _tile_stored(7, scores_ + group * kRegister, 64);
  }

  // A sixteenth of the values, from (0, 0) to (3, 3); called with a `quarter` that the compiler knows.
  [[gnu::always_inline]] void weigh(int64_t group, int64_t quarter) {
    if (high_ == nullptr) return;
    if (passes_ == 1) return weigh_tile(0, group, quarter);
    const int64_t at = (group * kPassTiles + quarter) * passes_;
    for (int64_t i = at; i < at + passes_; ++i) {
      const int64_t turn = i / kPassTiles;
      weigh_tile(turn / kGroups * kPassTiles, turn % kGroups, i % kPassTiles);
    }
  }

  // REQUIRES: all work that was started is done.
  void end() {
    queries_ = nullptr;
    high_ = nullptr;
    Tiles::order_memory();
  }

 private:
  // 16 keys' values in 16 columns, the `place`-th of a pass of four that begins at register `first`.
  [[gnu::always_inline]] void weigh_tile(int64_t first, int64_t group, int64_t place) {
    const int64_t tile = first + place;
    if (tile >= tiles_) return;
    if (place == 0) {
      if (group == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      _tile_loadd(5, high_ + group * kRegister, 64);
      _tile_loadd(6, low_ + group * kRegister, 64);
    }
    _tile_loadd(4, s_.values + (group * tiles_ + tile) * kRegister, 64);
    float* out = group + 1 == kGroups ? s_.products + tile * kRegister : nullptr;
    switch (place) {
      case 0:
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(0, 4, 6);
        if (out != nullptr) _tile_stored(0, out, 64);
        break;
      case 1:
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(1, 4, 6);
        if (out != nullptr) _tile_stored(1, out, 64);
        break;
      case 2:
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(2, 4, 6);
        if (out != nullptr) _tile_stored(2, out, 64);
        break;
      default:
        _tile_dpbf16ps(3, 4, 5);
        _tile_dpbf16ps(3, 4, 6);
        if (out != nullptr) _tile_stored(3, out, 64);
    }
  }

  const PrefillScratch& s_;
  int64_t columns_;
  int64_t row_bytes_;
  int64_t tiles_;   // registers that the values' columns fill
  int64_t passes_;  // over the weights, for as many of these as there are registers of sums
  const char* const* keys_;
  const float* queries_ = nullptr;  // null: no scores started
  float* scores_ = nullptr;
  const float* high_ = nullptr;  // null: no values started
  const float* low_ = nullptr;
};

}  // namespace troupe::cpu::avx512
