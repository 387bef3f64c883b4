#pragma once

// Attention of many rows (a prefill) with AMX: the bits of TileScores, softmax_row() and TileValues, reached
// another way. With rows enough to share it, everything that has to be turned is turned once for all of them,
// so that rows lie in lanes from the scores to the sums and nothing is added or compared across lanes:
//
//   scores (64 keys, 16 rows)  = keys as they lie in memory · queries, turned once an item
//   sums (C columns, 16 rows) += values, turned once a tile of keys · weights, row by row as they were made
//
// An instruction sums pairs; TileValues' pairs are a weight and a zero, so here a value comes with a zero,
// and the weights' two halves lie as they were cut.
//
// Products take their time beside other instructions. So while one block of 16 rows goes through its softmax,
// some of its neighbours' products are started every 4 keys: the weights of the block before by the values,
// the keys by the queries of the next block. (While AMX works a core multiplies vectors at half its speed, of
// its two units for it one is lent: the exponential function's 12 products bound the rest.)
//
// Included by target_avx512.cc, after tile_amx.h, under its target.

#include "kernels/cpu/tile_prefill_turns_amx.h"
#include "kernels/cpu/tile_values_amx.h"

namespace troupe::cpu::avx512 {

class TilePrefill {
 public:
  explicit TilePrefill(const AttentionTile& t) : t_(t), s_(t), rows_(t.queries * t.group) {}

  void run() {
    TileScores::load_queries(t_, AttentionScratch(t_));  // the same place, the same form
    const int64_t last_count = t_.first_count + t_.queries - 1;
    for (int64_t begin = 0; begin < last_count; begin += kAttentionChunkKeys) {
      const int64_t end = begin + kAttentionChunkKeys < last_count ? begin + kAttentionChunkKeys : last_count;
      attend_chunk(begin == 0 ? s_.whole : s_.chunk, begin, end);
      if (begin == 0) continue;
      for (int64_t b = 0; b < s_.blocks; ++b) merge(s_.state(s_.whole, b), s_.state(s_.chunk, b));
    }
    for (int64_t b = 0; b < s_.blocks; ++b) put_rows(b);
  }

 private:
  static constexpr int64_t kSide = Tiles::kSide;

  struct Tile {
    const TileRows& rows;
    int64_t first;  // key
  };
  // A block of 16 rows that goes through its softmax.
  struct Work {
    int64_t block;
    float* state;
    Vec scale;  // of the scores in s.scores, before anything is done with them
    Vec shift;
  };

  void attend_chunk(float* states, int64_t begin, int64_t end) {
    for (int64_t b = 0; b < s_.blocks; ++b) {
      float* state = s_.state(states, b);
      __builtin_memset(state, 0, static_cast<size_t>(s_.state_floats) * sizeof(float));
      store(state, broadcast(-__builtin_inff()));
    }
    const int64_t last_count = t_.first_count + t_.queries - 1;
    TileRows tiles[2];  // the one in work and the next
    find_rows(t_, begin, end, tiles[0]);
    int in_work = 0;
    for (int64_t first = begin; first < end; first += kAttentionTileKeys, in_work ^= 1) {
      TileRows& next = tiles[in_work ^ 1];
      next.count = 0;
      if (first + kAttentionTileKeys < last_count)
        find_rows(t_, first + kAttentionTileKeys, last_count, next);
      Ahead ahead(next, s_.blocks * kAttentionTileKeys);
      attend_tile(states, {tiles[in_work], first}, ahead);
      ahead.ask_rest();
    }
  }

  void attend_tile(float* states, const Tile& tile, Ahead& ahead) {
    PrefillTurns turns(t_, s_, tile.rows);
    int64_t block = 0;  // the first that sees a key of the tile; all after it do
    while (visible_to_block(block, tile) <= 0) ++block;
    turns.ask_scores(block);
    turn_values(tile, turns);
    turns.end();
    for (bool is_first = true; block < s_.blocks; ++block, is_first = false) {
      if (block + 1 < s_.blocks) turns.ask_scores(block + 1);
      if (!is_first) turns.ask_values(block - 1);
      float* state = s_.state(states, block);
      const Vec factor = weigh(tile, block, state, turns);
      turns.end();
      if (!is_first) add_products(s_.state(states, block - 1), factor_);
      factor_ = factor;
      ahead.pace(kAttentionTileKeys);
    }
    turns.ask_values(s_.blocks - 1);
    for (int64_t i = 0; i < kAttentionTileKeys / 4; ++i) turns.weigh(i / 4, i % 4);
    turns.end();
    add_products(s_.state(states, s_.blocks - 1), factor_);
  }

  // Keys that the last row of a block sees of a tile.
  int64_t visible_to_block(int64_t block, const Tile& tile) const {
    const int64_t last = block * kSide + kSide < rows_ ? block * kSide + kSide - 1 : rows_ - 1;
    return visible_to(t_, last, tile.first);
  }

  // The tile's values to s.values, zeros for keys that none of the rows sees.
  void turn_values(const Tile& tile, PrefillTurns& turns) const {
    float* out = s_.values;
    for (int64_t g = 0; g < PrefillTurns::kGroups; ++g) {
      for (int64_t c = 0; c < t_.head_dim; c += Tiles::kDepth) {
        __m512i pairs[kSide];
#pragma GCC unroll 16
        for (int j = 0; j < kSide; ++j) {
          pairs[j] = g * kSide + j < tile.rows.count
                         ? _mm512_loadu_si512(tile.rows.values[g * kSide + j] + 2 * c)
                         : _mm512_setzero_si512();
        }
        PairScores::transpose(pairs);
        const __m512i top = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
#pragma GCC unroll 16
        for (int p = 0; p < kSide; ++p, out += kSide) {
          _mm512_store_si512(out, _mm512_slli_epi32(pairs[p], 16));
          _mm512_store_si512(out + kSide * kSide, _mm512_and_si512(pairs[p], top));
        }
        out += kSide * kSide;
      }
      turns.score(g);
    }
  }

  // A block's scores become weights, in s.high and s.low; returns what its sums are to be multiplied by.
  Vec weigh(const Tile& tile, int64_t block, float* state, PrefillTurns& turns) const {
    float* scores = s_.scores[block % 2];
    const bool plain =
        t_.slopes == nullptr && visible_to(t_, block * kSide, tile.first) == kAttentionTileKeys;
    const Vec before = load(state);
    Vec shift;
    Vec scale = broadcast(t_.scale);
    Vec most;
    if (plain && t_.scale > 0) {
      most = mul(largest_of(scores), scale);
      shift = max(most, before);
    } else {
      most = finish_scores(tile, block, scores);
      shift = max(most, before);
      scale = broadcast(1.0f);
    }
    const __mmask16 unmoved = _mm512_cmp_ps_mask(shift.r, before.r, _CMP_EQ_OQ);
    const Vec factor = {_mm512_mask_mov_ps(exp(sub(before, shift)).r, unmoved, _mm512_set1_ps(1.0f))};
    store(state, shift);
    if (!plain) shift = hide_blind(tile, block, shift);
    const Vec total = weigh_scores({block, state, scale, shift}, turns);
    store(state + kLanes, add(mul(load(state + kLanes), factor), total));
    return factor;
  }

  // Lanes' rows that see nothing of the tile: no score is anything there, so what is taken from them is 0.
  Vec hide_blind(const Tile& tile, int64_t block, Vec shift) const {
    const __mmask16 blind =
        _mm512_cmp_epi32_mask(visible(tile, block), _mm512_setzero_si512(), _MM_CMPINT_LE);
    return {_mm512_mask_mov_ps(shift.r, blind, _mm512_setzero_ps())};
  }

  // Keys of the tile that the rows of a block see.
  __m512i visible(const Tile& tile, int64_t block) const {
    alignas(64) int32_t counts[kSide];
    for (int64_t i = 0; i < kSide; ++i)
      counts[i] = static_cast<int32_t>(visible_to(t_, block * kSide + i, tile.first));
    return _mm512_load_si512(counts);
  }

  static Vec largest_of(const float* scores) {
    Vec most[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) most[i] = load(scores + i * kLanes);
#pragma GCC unroll 4
    for (int64_t j = 4; j < kAttentionTileKeys; j += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) most[i] = max(most[i], load(scores + (j + i) * kLanes));
    }
    return max(max(most[0], most[1]), max(most[2], most[3]));
  }

  // Scales a block's scores, adds ALiBi's distances and hides what its rows do not see; returns the largest.
  Vec finish_scores(const Tile& tile, int64_t block, float* scores) const {
    alignas(64) float slopes[kSide] = {};
    alignas(64) float positions[kSide] = {};
    for (int64_t i = 0; i < kSide && t_.slopes != nullptr; ++i) {
      const int64_t row = block * kSide + i;
      slopes[i] = t_.slopes[row % t_.group];
      positions[i] = static_cast<float>(t_.first_count + row / t_.group - 1 - tile.first);
    }
    const __m512i seen = visible(tile, block);
    const Vec scale = broadcast(t_.scale);
    const Vec hidden = broadcast(-__builtin_inff());
    Vec most = hidden;
    for (int64_t j = 0; j < kAttentionTileKeys; ++j) {
      Vec score = mul(load(scores + j * kLanes), scale);
      if (t_.slopes != nullptr) {
        const Vec distance = sub(broadcast(static_cast<float>(j)), load(positions));
        score = fma(load(slopes), distance, score);
      }
      const __m512i key = _mm512_set1_epi32(static_cast<int32_t>(j));
      score.r = _mm512_mask_mov_ps(hidden.r, _mm512_cmp_epi32_mask(key, seen, _MM_CMPINT_LT), score.r);
      most = max(most, score);
      store(scores + j * kLanes, score);
    }
    return most;
  }

  // exp() of what is at most 0, in fewer steps. Whole numbers are rounded and go into the exponent by way of
  // their place behind 1.5 · 2²³. What is no number stays none: its lowest bits are 0.
  static Vec exp_down(Vec x) {
    const Vec big = broadcast(12582912.0f);
    const Vec shifted = add(mul(x, broadcast(1.44269504088896341f)), big);
    const Vec n = sub(shifted, big);
    const Vec p = exp_rest(x, n);
    const __mmask16 some = _mm512_cmp_ps_mask(x.r, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);
    const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted.r), 23);
    return {_mm512_castsi512_ps(_mm512_maskz_add_epi32(some, _mm512_castps_si512(p.r), power))};
  }

  // exp(scores · scale - shift) cut in two; returns each row's total, added up as softmax_row() does.
  //
  // Memory is gone through in 16 keys at a time, in the order in which the neighbours' products take it or
  // leave it: where a load and a store before it agree in the lowest 12 bits of their addresses, the load
  // waits.
  Vec weigh_scores(const Work& work, PrefillTurns& turns) const {
    const float* scores = s_.scores[work.block % 2];
    float* high = s_.high[work.block % 2];
    float* low = s_.low[work.block % 2];
    const __m512i top = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
    const __m512i half = _mm512_set1_epi32(0x8000);
    Vec totals[kSide];
    for (int64_t l = 0; l < kSide; ++l) totals[l] = broadcast(0.0f);
    for (int64_t g = 0; g < PrefillTurns::kGroups; ++g) {
#pragma GCC unroll 4
      for (int64_t quarter = 0; quarter < 4; ++quarter) {
        turns.weigh(g, quarter);
#pragma GCC unroll 4
        for (int64_t l = 4 * quarter; l < 4 * quarter + 4; ++l) {
          const int64_t at = (g * kSide + l) * kLanes;
          const Vec weight = exp_down(sub(mul(load(scores + at), work.scale), work.shift));
          totals[l] = add(totals[l], weight);
          const __m512i upper = _mm512_and_si512(_mm512_castps_si512(weight.r), top);
          const Vec rest = sub(weight, {_mm512_castsi512_ps(upper)});
          const __m512i lower = _mm512_add_epi32(_mm512_castps_si512(rest.r), half);
          _mm512_store_si512(high + at, upper);
          _mm512_store_si512(low + at, _mm512_and_si512(lower, top));
        }
      }
      turns.score(g);
    }
    for (int64_t width = kSide / 2; width > 0; width /= 2) {
      for (int64_t l = 0; l < width; ++l) totals[l] = add(totals[l + width], totals[l]);
    }
    return totals[0];
  }

  // Adds s.products to a block's sums, once these are multiplied by the factor.
  void add_products(float* state, Vec factor) const {
    float* sums = state + 2 * kLanes;
    const float* products = s_.products;
#pragma GCC unroll 4
    for (int64_t c = 0; c < t_.head_dim * kLanes; c += kLanes)
      store(sums + c, add(mul(load(sums + c), factor), load(products + c)));
  }

  // merge_record() of 16 rows.
  void merge(float* whole, const float* chunk) const {
    const Vec chunk_total = load(chunk + kLanes);
    const __mmask16 some = _mm512_cmp_ps_mask(chunk_total.r, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const Vec most = max(load(whole), load(chunk));
    const Vec old_factor = exp(sub(load(whole), most));
    const Vec new_factor = exp(sub(load(chunk), most));
    _mm512_mask_storeu_ps(whole, some, most.r);
    for (int64_t c = kLanes; c < s_.state_floats; c += kLanes) {
      const Vec sum = fma(load(chunk + c), new_factor, mul(load(whole + c), old_factor));
      _mm512_mask_storeu_ps(whole + c, some, sum.r);
    }
  }

  // Numbers rounded as everywhere, in the lower halves.
  static __m512i rounded(Vec a) {
    alignas(64) BFloat16 numbers[kLanes];
    store(numbers, a);
    return _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(numbers)));
  }

  void put_rows(int64_t block) const {
    const float* state = s_.state(s_.whole, block);
    const Vec total = load(state + kLanes);
    const float* sums = state + 2 * kLanes;
    for (int64_t c = 0; c < t_.head_dim; c += Tiles::kDepth, sums += Tiles::kDepth * kLanes) {
      __m512i pairs[kSide];
#pragma GCC unroll 16
      for (int p = 0; p < kSide; ++p) {
        const __m512i even = rounded(div(load(sums + p * kLanes), total));
        const __m512i odd = rounded(div(load(sums + (kSide + p) * kLanes), total));
        pairs[p] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
      }
      PairScores::transpose(pairs);
      for (int64_t i = 0; i < kSide && block * kSide + i < rows_; ++i) {
        const int64_t row = block * kSide + i;
        BFloat16* out =
            static_cast<BFloat16*>(t_.out) + row / t_.group * t_.row_stride + row % t_.group * t_.head_dim;
        _mm512_storeu_si512(out + c, pairs[i]);
      }
    }
  }

  const AttentionTile& t_;
  PrefillScratch s_;
  int64_t rows_;
  Vec factor_ = {};  // of the block whose products are next
};

// Whether weight 0 hides what some of the rows do not see: a value that is no number would show.
inline bool hidden_are_finite(const AttentionTile& t) {
  const int64_t last_count = t.first_count + t.queries - 1;
  TileRows rows;
  for (int64_t first = t.first_count; first < last_count; first += kAttentionTileKeys) {
    find_rows(t, first, last_count, rows);
    if (!TileValues::are_finite(t, rows, 0, rows.count)) return false;
  }
  return true;
}

inline void prefill_tiles(const AttentionTile& t) {
  if (hidden_are_finite(t)) {
    Tiles::configure();
    TilePrefill(t).run();
    Tiles::release();
    return;
  }
  const int64_t together = kAttentionRows / t.group;
  for (int64_t first = 0; first < t.queries; first += together) {
    AttentionTile part = t;
    const int64_t offset = first * t.row_stride * int64_t{sizeof(BFloat16)};
    part.q = static_cast<const char*>(t.q) + offset;
    part.out = static_cast<char*>(t.out) + offset;
    part.queries = together < t.queries - first ? together : t.queries - first;
    part.first_count = t.first_count + first;
    part.end_chunk = (part.first_count + part.queries - 1 + kAttentionChunkKeys - 1) / kAttentionChunkKeys;
    attention_tiles(part);
  }
}

}  // namespace troupe::cpu::avx512
