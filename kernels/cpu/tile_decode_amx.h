#pragma once

// Attention of one token (a decode) with AMX: the operations of TileScores, softmax_row() and TileValues, so
// their bits, in an order in which little waits. A tile of keys is a chain: products, scores, weights,
// products, sums; 52 cycles from a product to its result and as many again through memory. A core looks some
// 500 instructions ahead, not as far as the next tile. So while the weights of a tile are made
//
//   the keys of the next are multiplied, its scores turned afterwards,
//   the products of the one before are added to the sums.
//
// Few rows need not turn whole registers either: of 16 x 16 scores, four rows' are taken out of 16 quarters
// of lines; weights lie as close as rows are few.
//
// Keys and values of the tile after the next are asked for meanwhile, evenly: see Ahead.
//
// A tile of 64 keys in the cache, without and with all this: 64 x 1, 2, 7 heads a group 445, 479, 690 -> 301,
// 335, 521 ns; 128 x 4, 8 heads 890, 1,110 -> 628, 874 ns.
//
// Included by target_avx512.cc under the target of tile_amx.h.

#include "kernels/cpu/tile_scores_amx.h"
#include "kernels/cpu/tile_values_amx.h"

namespace troupe::cpu::avx512 {

class TileDecode {
 public:
  static constexpr int64_t kRowsMax = 8;

  static bool can(const AttentionTile& t) {
    return t.queries == 1 && t.group <= kRowsMax && t.block_size % kSide == 0 &&
           tiles_weigh_values(t.group, t.head_dim);
  }

  // REQUIRES can(t), bfloat16, C a multiple of 32.
  explicit TileDecode(const AttentionTile& t)
      : t_(t), s_(t), end_(kAttentionChunkKeys * t.end_chunk), products_(s_.keys + kSide * t.head_dim) {
    if (end_ > t.first_count) end_ = t.first_count;
  }

  void run() {
    configure();
    TileScores::load_queries(t_, s_);
    const int64_t begin = t_.first_chunk * kAttentionChunkKeys;
    for (int64_t i = 0; i < 2; ++i) find(begin + i * kAttentionTileKeys, tiles_[i]);
    Asking nothing;
    multiply_keys(tiles_[0], nothing);
    finish_scores(begin, tiles_[0]);
    for (int64_t first = begin, i = 0; first < end_; first += kAttentionTileKeys, i = (i + 1) % 3) {
      const Tile& here = tiles_[i];
      const Tile& next = tiles_[(i + 1) % 3];
      Tile& after = tiles_[(i + 2) % 3];
      find(first + 2 * kAttentionTileKeys, after);
      Asking asking(after, t_.head_dim);
      if (first % kAttentionChunkKeys == 0) start_chunk(first / kAttentionChunkKeys);
      if (next.count > 0) multiply_keys(next, asking);
      weigh(here);
      multiply_values(here, asking);
      if (next.count > 0) finish_scores(first + kAttentionTileKeys, next);
      if (next.count <= 0 || (first + kAttentionTileKeys) % kAttentionChunkKeys == 0) end_chunk();
    }
    Tiles::release();
    if (t_.records == nullptr) store_rows<BFloat16>(t_, s_, s_.whole);
  }

 private:
  static constexpr int64_t kSide = Tiles::kSide;
  static constexpr int64_t kGroups = kAttentionTileKeys / kSide;
  static constexpr int64_t kBlock = Tiles::kDepth;  // elements of a register's row
  static constexpr int64_t kRegister = kSide * kSide;

  // 64 keys, by 16 of a block; what the token does not see of them is repeated.
  struct Tile {
    const char* keys[kGroups];
    const char* values[kGroups];
    int64_t count;  // <= 0: none
    int64_t groups() const { return (count + kSide - 1) / kSide; }
  };

  // Asks for a tile's memory in turns of 4 lines, C in all.
  class Asking {
   public:
    Asking() = default;
    Asking(const Tile& tile, int64_t turns) : tile_(&tile), left_(tile.count > 0 ? turns : 0) {}
    void ask(int64_t turns) {
      for (; turns > 0 && left_ > 0; --turns, --left_, ++turn_) {
        const int64_t g = turn_ / 2 % kGroups;
        const char* at = (turn_ % 2 == 0 ? tile_->keys : tile_->values)[g] + turn_ / (2 * kGroups) * kTurn;
        for (int64_t b = 0; b < kTurn; b += 64) _mm_prefetch(at + b, _MM_HINT_T1);
      }
    }

   private:
    static constexpr int64_t kTurn = 4 * 64;
    const Tile* tile_ = nullptr;
    int64_t left_ = 0;
    int64_t turn_ = 0;
  };
  static constexpr int64_t kTurns = 2;  // at a time: C / 2 times a tile

  // Registers: 0, 1 scores of 16 keys; 2, 3 sums of 32 columns; 4, 5 keys, values or queries; 6, 7 weights.
  void configure() const {
    Tiles::Config config;
    for (int i : {2, 3, 6, 7}) config.rows[i] = static_cast<uint8_t>(2 * t_.group);
    _tile_loadconfig(&config);
  }

  void find(int64_t first, Tile& tile) const {
    tile.count = end_ - first < kAttentionTileKeys ? end_ - first : kAttentionTileKeys;
    if (tile.count <= 0) return;
    const int64_t groups = tile.groups();
    for (int64_t g = 0; g < kGroups; ++g) {
      const int64_t key = first + (g < groups ? g : 0) * kSide;
      const int64_t at =
          t_.blocks[key / t_.block_size] * t_.block_bytes + key % t_.block_size * 2 * t_.head_dim;
      tile.keys[g] = t_.keys + at;
      tile.values[g] = t_.values + at;
    }
  }

  void start_chunk(int64_t chunk) {
    const int64_t rows = t_.group;
    if (t_.records != nullptr) {
      record_ = t_.records + (chunk - t_.first_chunk) * rows * s_.record;
    } else {
      record_ = chunk == 0 ? s_.whole : s_.chunk;
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* record = record_ + row * s_.record;
      __builtin_memset(record, 0, static_cast<size_t>(s_.record) * sizeof(float));
      record[0] = -__builtin_inff();
    }
    is_first_ = true;
  }

  void end_chunk() {
    add_products();
    if (record_ != s_.chunk) return;
    for (int64_t row = 0; row < t_.group; ++row) {
      merge_record(s_.whole + row * s_.record, s_.chunk + row * s_.record, s_.width);
    }
  }

  // (16 keys, 16 rows) of scores, a register a group.
  void multiply_keys(const Tile& tile, Asking& asking) {
    const int64_t stride = 2 * t_.head_dim;
    Tiles::order_memory();
    for (int64_t g = 0; g < kGroups; g += 2) {
      _tile_zero(0);
      _tile_zero(1);
      const float* queries = s_.q;
      for (int64_t c = 0; c < t_.head_dim; c += kBlock, queries += kSide * kBlock / 2) {
        _tile_loadd(5, queries, 64);
        _tile_loadd(4, tile.keys[g] + 2 * c, stride);
        _tile_dpbf16ps(0, 4, 5);
        asking.ask(2 * kTurns);
        _tile_loadd(4, tile.keys[g + 1] + 2 * c, stride);
        _tile_dpbf16ps(1, 4, 5);
        asking.ask(2 * kTurns);
      }
      _tile_stored(0, dots_ + g * kRegister, 64);
      _tile_stored(1, dots_ + (g + 1) * kRegister, 64);
    }
    Tiles::order_memory();
  }

  // Scaled scores of the tile at `first`, row by row.
  void finish_scores(int64_t first, const Tile& tile) const {
    const Vec scale = broadcast(t_.scale);
    for (int64_t row = 0; row < t_.group; row += 4) {
      for (int64_t g = 0; g < kGroups; ++g) {
        Vec quarters[4];
        take_rows(dots_ + g * kRegister + row, quarters);
        float* out = s_.scores + row * kAttentionTileKeys + g * kSide;
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) store(out + i * kAttentionTileKeys, mul(quarters[i], scale));
      }
    }
    if (t_.slopes != nullptr) {
      for (int64_t row = 0; row < t_.group; ++row) add_distances(t_, s_, row, first);
    }
    const int64_t hidden = kAttentionTileKeys - tile.count;
    for (int64_t row = 0; hidden > 0 && row < t_.group; ++row) {
      float* scores = s_.scores + row * kAttentionTileKeys;
      for (int64_t j = tile.count; j < kAttentionTileKeys; ++j) scores[j] = -__builtin_inff();
    }
  }

  // Four columns of (16, 16).
  static void take_rows(const float* in, Vec* rows) {
    __m512 r[4];  // lane 4 l + i: column i of row 4 l + a
#pragma GCC unroll 4
    for (int a = 0; a < 4; ++a) {
      r[a] = _mm512_castps128_ps512(_mm_loadu_ps(in + a * kSide));
      r[a] = _mm512_mask_broadcast_f32x4(r[a], 0x00f0, _mm_loadu_ps(in + (4 + a) * kSide));
      r[a] = _mm512_mask_broadcast_f32x4(r[a], 0x0f00, _mm_loadu_ps(in + (8 + a) * kSide));
      r[a] = _mm512_mask_broadcast_f32x4(r[a], 0xf000, _mm_loadu_ps(in + (12 + a) * kSide));
    }
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1]));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3]));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1]));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
    rows[0] = {_mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23))};
    rows[1] = {_mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23))};
    rows[2] = {_mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23))};
    rows[3] = {_mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23))};
  }

  // The tile's scores become weights, cut in two; the products of the tile before are added.
  void weigh(const Tile& tile) {
    float factors[kRowsMax];
    for (int64_t row = 0; row < t_.group; ++row) factors[row] = weigh_row(tile, row);
    if (!is_first_) add_products();
    is_first_ = false;
    for (int64_t row = 0; row < t_.group; ++row) factors_[row] = factors[row];
  }

  // Returns what the row's sums are to be multiplied by.
  float weigh_row(const Tile& tile, int64_t row) {
    const float* scores = s_.scores + row * kAttentionTileKeys;
    float* record = record_ + row * s_.record;
    Vec score[kGroups];
    Vec found = broadcast(-__builtin_inff());
#pragma GCC unroll 4
    for (int64_t g = 0; g < kGroups; ++g) {
      score[g] = load(scores + g * kSide);
      found = max(found, score[g]);
    }
    const float before = record[0];
    const float in_tile = largest(found);
    const float now = in_tile > before ? in_tile : before;
    const Vec shift = broadcast(now);
    Vec total = broadcast(0.0f);
    const int64_t groups = tile.groups();
#pragma GCC unroll 4
    for (int64_t g = 0; g < kGroups; ++g) {
      if (g >= groups) break;
      const Vec weight = exp(sub(score[g], shift));
      total = add(total, weight);
      put_weight(weight, g, row);
    }
    float factor = 1.0f;
    if (now != before) {
      factor = _mm512_cvtss_f32(exp(broadcast(before - now)).r);
      record[1] *= factor;
      record[0] = now;
    }
    record[1] += sum(total);
    return factor;
  }

  // See TileValues.
  void put_weight(Vec weight, int64_t group, int64_t row) {
    const __m512i top = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
    const __m512i high = _mm512_and_si512(_mm512_castps_si512(weight.r), top);
    const __m512i rest = _mm512_castps_si512(sub(weight, {_mm512_castsi512_ps(high)}).r);
    const __m512i low = _mm512_add_epi32(rest, _mm512_set1_epi32(0x8000));
    _mm512_store_si512(high_[group][row], _mm512_srli_epi32(high, 16));
    _mm512_store_si512(high_[group][t_.group + row], high);
    _mm512_store_si512(low_[group][row], _mm512_srli_epi32(low, 16));
    _mm512_store_si512(low_[group][t_.group + row], _mm512_and_si512(low, top));
  }

  // (C / 32) registers of (rows' even columns, rows' odd columns).
  void multiply_values(Tile tile, Asking& asking) {
    if (tile.count % kSide != 0) hide_values(tile);
    Tiles::order_memory();
    float* out = products_;
    int64_t c = 0;
    for (; c + 2 * kBlock <= t_.head_dim; c += 2 * kBlock, out += 2 * kRegister) {
      multiply_columns<2>(tile, c, out, asking);
    }
    if (c < t_.head_dim) multiply_columns<1>(tile, c, out, asking);
    Tiles::order_memory();
  }

  template <int kBlocks>
  void multiply_columns(const Tile& tile, int64_t column, float* out, Asking& asking) {
    const int64_t stride = 2 * t_.head_dim;
    const int64_t groups = tile.groups();
    _tile_zero(2);
    if constexpr (kBlocks == 2) _tile_zero(3);
    for (int64_t g = 0; g < groups; ++g) {
      const char* values = tile.values[g] + 2 * column;
      _tile_loadd(6, high_[g], 64);
      _tile_loadd(7, low_[g], 64);
      _tile_loadd(4, values, stride);
      _tile_dpbf16ps(2, 6, 4);
      asking.ask(kTurns);
      _tile_dpbf16ps(2, 7, 4);
      asking.ask(kTurns);
      if constexpr (kBlocks == 2) {
        _tile_loadd(5, values + 64, stride);
        _tile_dpbf16ps(3, 6, 5);
        asking.ask(kTurns);
        _tile_dpbf16ps(3, 7, 5);
        asking.ask(kTurns);
      }
    }
    _tile_stored(2, out, 64);
    if constexpr (kBlocks == 2) _tile_stored(3, out + kRegister, 64);
  }

  // Values of the last group that the token does not see are 0.
  void hide_values(Tile& tile) const {
    const int64_t row_bytes = 2 * t_.head_dim;
    const int64_t g = tile.groups() - 1;
    char* out = reinterpret_cast<char*>(s_.keys);
    __builtin_memset(out, 0, static_cast<size_t>(kSide * row_bytes));
    __builtin_memcpy(out, tile.values[g], static_cast<size_t>(tile.count % kSide * row_bytes));
    tile.values[g] = out;
  }

  void add_products() const {
    for (int64_t row = 0; row < t_.group; ++row) {
      const Vec factor = broadcast(factors_[row]);
      float* sums = record_ + row * s_.record + kRecordHead;
      const float* even = products_ + row * kSide;
      const float* odd = even + t_.group * kSide;
      for (int64_t c = 0; c < t_.head_dim; c += kBlock, sums += kBlock, even += kRegister, odd += kRegister) {
        store(sums, add(mul(load(sums), factor), load(even)));
        store(sums + kLanes, add(mul(load(sums + kLanes), factor), load(odd)));
      }
    }
  }

  const AttentionTile& t_;
  AttentionScratch s_;
  int64_t end_;
  Tile tiles_[3];    // by turns
  float* products_;  // (C / 32) registers; before them in s_.keys, values of which some are hidden
  float* record_ = nullptr;
  bool is_first_ = true;  // of the chunk
  float factors_[kRowsMax] = {};
  alignas(64) float dots_[kGroups * kRegister];
  alignas(64) uint32_t high_[kGroups][2 * kRowsMax][kSide];
  alignas(64) uint32_t low_[kGroups][2 * kRowsMax][kSide];
};

inline void attention_tiles(const AttentionTile& t) {
  if (t.dtype != DType::kBFloat16 || t.head_dim % TileScores::kBlock != 0) return attention_pairs(t);
  if (TileDecode::can(t)) return TileDecode(t).run();
  Tiles::configure();
  if (tiles_weigh_values(t.group, t.head_dim)) {
    attention_as<BFloat16, TileScores, TileValues>(t);
  } else {
    attention_as<BFloat16, TileScores>(t);
  }
  Tiles::release();
}

}  // namespace troupe::cpu::avx512
