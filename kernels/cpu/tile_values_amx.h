#pragma once

// Values weighted by attention's softmax with AMX (see tile_scores_amx.h): 16 rows by 32 keys of weights
// times 32 keys by 16 columns of values in one instruction. The instruction takes bfloat16, of which a weight
// is the sum of two, high + low, to within 2^-17 of it:
//
//   sums += Σ high · v + Σ low · v      each over the tile's keys, 32 at a time
//
// A row takes the same steps for every tile of which it sees a key, what it does not see with weight 0:
// neither its neighbours nor where a prompt was cut change a bit of it, as long as its request's values are
// finite.
//
// Included by target_avx512.cc, after tile_scores_amx.h, under its target. Of 32 columns a record holds the
// even ones before the odd, as load_two() has them. Scratch: s.keys holds (C / 32 blocks, 2 halves of the
// keys, even and odd columns, 16 pairs of keys, 16 columns) pairs.

namespace troupe::cpu::avx512 {

struct TileValues {
  static constexpr int64_t kSide = Tiles::kSide;
  static constexpr int64_t kBlock = Tiles::kDepth;  // columns at a time; keys of a weights' register
  static constexpr int64_t kHalves = kAttentionTileKeys / kBlock;
  static constexpr int64_t kRegister = kSide * kSide;  // floats

  static int64_t steps(const AttentionTile& t, const AttentionScratch&) {
    const int64_t sides = (t.queries * t.group + kSide - 1) / kSide;
    return t.head_dim / kBlock * (kAttentionTileKeys * kPairSteps + sides * kProductSteps);
  }

  // The tile's values, two keys' side by side as the products take them.
  static void prepare(const AttentionTile& t, const AttentionScratch& s, const TileRows& here, Ahead& ahead) {
    constexpr __mmask32 kUpper = 0xaaaaaaaa;  // the upper halves of 32 bits
    for (int64_t j = 0; j < kAttentionTileKeys; j += 2) {
      const char* first = here.values[j];
      const char* second = here.values[j + 1];
      float* out = s.keys + j / kBlock * 2 * kRegister + j % kBlock / 2 * kSide;
      for (int64_t c = 0; c < t.head_dim; c += kBlock, out += kHalves * 2 * kRegister) {
        const __m512i a = _mm512_loadu_si512(first + 2 * c);
        const __m512i b = _mm512_loadu_si512(second + 2 * c);
        _mm512_storeu_si512(out, _mm512_mask_blend_epi16(kUpper, a, _mm512_slli_epi32(b, 16)));
        _mm512_storeu_si512(out + kRegister, _mm512_mask_blend_epi16(kUpper, _mm512_srli_epi32(a, 16), b));
      }
      ahead.pace(2 * kPairSteps * t.head_dim / kBlock);
    }
  }

  static void add(const AttentionTile& t, const AttentionScratch& s, float* records, const TileRows&,
                  int64_t first, Ahead& ahead) {
    const int64_t rows = t.queries * t.group;
    for (int64_t row = 0; row < rows; row += kSide) {
      const int64_t end = row + kSide < rows ? row + kSide : rows;
      if (visible_to(t, end - 1, first) <= 0) continue;
      Weights weights;
      for (int64_t i = row; i < end; ++i) split_weights(t, s, i, first, weights);
      alignas(64) float sums[4][kRegister];  // (16 rows, 16 columns): even and odd by high, then by low
      for (int64_t c = 0; c < t.head_dim; c += kBlock) {
        Tiles::order_memory();
        multiply(weights, s.keys + c / kBlock * kHalves * 2 * kRegister, sums);
        Tiles::order_memory();
        for (int64_t i = row; i < end; ++i) {
          ahead.pace(kProductSteps / (end - row));
          if (visible_to(t, i, first) <= 0) continue;
          float* out = records + i * s.record + kRecordHead + c;
          const int64_t at = (i - row) * kSide;
          const Vec even = avx512::add(load(sums[0] + at), load(sums[2] + at));
          const Vec odd = avx512::add(load(sums[1] + at), load(sums[3] + at));
          store(out, avx512::add(load(out), even));
          store(out + kLanes, avx512::add(load(out + kLanes), odd));
        }
      }
    }
  }

 private:
  static constexpr int64_t kPairSteps = 2;  // see Ahead; of a key's 32 columns
  static constexpr int64_t kProductSteps = 160;

  // Of up to 16 rows, as bfloat16.
  struct alignas(64) Weights {
    uint16_t high[kHalves][kSide][kBlock];
    uint16_t low[kHalves][kSide][kBlock];
  };

  // Zero where a row sees nothing.
  static Vec weight(const float* weights, int64_t at, int64_t visible) {
    return at < visible ? load(weights + at) : broadcast(0.0f);
  }

  static void split_weights(const AttentionTile& t, const AttentionScratch& s, int64_t row, int64_t first,
                            Weights& out) {
    const int64_t visible = visible_to(t, row, first);
    const float* weights = s.scores + row * kAttentionTileKeys;
    const __m512i top = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
#pragma GCC unroll 2
    for (int64_t half = 0; half < kHalves; ++half) {
      const Vec a = weight(weights, half * kBlock, visible);
      const Vec b = weight(weights, half * kBlock + kLanes, visible);
      const Vec high_a{_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a.r), top))};
      const Vec high_b{_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(b.r), top))};
      const __m512bh high = _mm512_cvtne2ps_pbh(high_b.r, high_a.r);
      const __m512bh low = _mm512_cvtne2ps_pbh(sub(b, high_b).r, sub(a, high_a).r);
      _mm512_store_si512(out.high[half][row % kSide], (__m512i)high);
      _mm512_store_si512(out.low[half][row % kSide], (__m512i)low);
    }
  }

  // 32 columns of 16 rows.
  static void multiply(const Weights& weights, const float* values, float (*sums)[kRegister]) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t half = 0; half < kHalves; ++half, values += 2 * kRegister) {
      _tile_loadd(4, weights.high[half], 64);
      _tile_loadd(5, weights.low[half], 64);
      _tile_loadd(6, values, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      _tile_loadd(7, values + kRegister, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
  }
};

inline void attention_tiles(const AttentionTile& t) {
  if (t.dtype != DType::kBFloat16 || t.head_dim % TileScores::kBlock != 0) return attention_pairs(t);
  Tiles::configure();
  // Laying values side by side costs what it costs, however few heads share them. How many do is the model's,
  // so that it does not depend on the batch.
  constexpr int64_t kTileValuesGroup = 4;
  if (t.group >= kTileValuesGroup) {
    attention_as<BFloat16, TileScores, TileValues>(t);
  } else {
    attention_as<BFloat16, TileScores>(t);
  }
  Tiles::release();
}

}  // namespace troupe::cpu::avx512
