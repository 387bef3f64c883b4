#pragma once

// Values weighted by attention's softmax with AMX (see tile_scores_amx.h). The instruction sums pairs, here
// two columns of a key, and takes the values as they lie in memory: 16 keys of 32 columns. A row's weights
// come twice, in the even elements with zeros between them and in the odd ones: the first make sums of the
// even columns, the second of the odd. So eight rows fill a register, and nothing is laid out anew but the
// weights. They are bfloat16, too, of which a weight is the sum of two, high + low, to within 2^-15 of it:
//
//   sums += Σ over 16 keys at a time of (Σ high · v + Σ low · v)
//
// A row takes the same steps for every tile of which it sees a key, what it does not see with weight 0 and,
// where that would not do, value 0: neither its neighbours nor where a prompt was cut change a bit of it.
// (Laying the values of two keys side by side, as pairs, takes half as many products and loses: the stores.)
//
// Included by target_avx512.cc, after tile_scores_amx.h, under its target. A record holds the even ones of 32
// columns before the odd, as load_two() has them. Scratch: s.keys holds the values of keys that are not 16 of
// one block, or that not all rows see.

namespace troupe::cpu::avx512 {

struct TileValues {
  static constexpr int64_t kSide = Tiles::kSide;  // keys of a register
  static constexpr int64_t kRows = kSide / 2;
  static constexpr int64_t kBlock = Tiles::kDepth;  // columns of a register
  static constexpr int64_t kGroups = kAttentionTileKeys / kSide;

  static int64_t steps(const AttentionTile& t, const AttentionScratch&) {
    const int64_t rows = t.queries * t.group;
    return (rows + kRows - 1) / kRows * kGroups * t.head_dim / kBlock * kProductSteps + rows * kRowSteps;
  }

  static void add(const AttentionTile& t, const AttentionScratch& s, float* records, const TileRows& here,
                  int64_t first, Ahead& ahead) {
    const int64_t rows = t.queries * t.group;
    for (int64_t row = 0; row < rows; row += kRows) {
      const int64_t end = row + kRows < rows ? row + kRows : rows;
      const int64_t hidden = visible_to(t, row, first);  // from here on, from some
      if (are_finite(t, here, hidden < 0 ? 0 : hidden, visible_to(t, end - 1, first))) {
        add_rows(t, s, records, here, {row, end, first}, ahead);
      } else {  // weight 0 would not hide them
        for (int64_t i = row; i < end; ++i) add_rows(t, s, records, here, {i, i + 1, first}, ahead);
      }
    }
  }

  static bool are_finite(const AttentionTile& t, const TileRows& here, int64_t begin, int64_t end) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t c = 0; c < t.head_dim; c += kBlock) {
        const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(here.values[j] + 2 * c), exponent);
        if (_mm512_cmpeq_epi16_mask(bits, exponent) != 0) return false;
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kProductSteps = 32;  // see Ahead; of 16 keys' 32 columns
  static constexpr int64_t kRowSteps = 40;

  struct Rows {
    int64_t begin;
    int64_t end;    // at most kRows further on
    int64_t first;  // key of the tile
  };
  // (row twice, key) of 32 bits: row i's weights in the lower halves of i, in the upper ones of kRows + i.
  struct alignas(64) Weights {
    uint32_t high[kGroups][kSide][kSide];
    uint32_t low[kGroups][kSide][kSide];
  };
  struct Groups {
    const char* values[kGroups];  // of 16 keys, 2 · C bytes apart
    int64_t count;
  };

  static void add_rows(const AttentionTile& t, const AttentionScratch& s, float* records,
                       const TileRows& here, const Rows& rows, Ahead& ahead) {
    const int64_t visible = visible_to(t, rows.end - 1, rows.first);
    if (visible <= 0) return;
    Groups groups;
    find_groups(t, s, here, visible, groups);
    Weights weights;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      split_weights(s.scores + i * kAttentionTileKeys, visible_to(t, i, rows.first), i - rows.begin, weights);
    }
    for (int64_t c = 0; c < t.head_dim;) {
      const int64_t blocks = (t.head_dim - c) / kBlock;
      if (blocks >= 4) {
        add_columns<4>(t, s, records, rows, {weights, groups, c}, ahead);
        c += 4 * kBlock;
      } else if (blocks >= 2) {
        add_columns<2>(t, s, records, rows, {weights, groups, c}, ahead);
        c += 2 * kBlock;
      } else {
        add_columns<1>(t, s, records, rows, {weights, groups, c}, ahead);
        c += kBlock;
      }
    }
  }

  // The groups of 16 of which a row sees a key; what none of the rows sees is 0.
  static void find_groups(const AttentionTile& t, const AttentionScratch& s, const TileRows& here,
                          int64_t visible, Groups& groups) {
    const int64_t row_bytes = 2 * t.head_dim;
    groups.count = (visible + kSide - 1) / kSide;
    for (int64_t g = 0; g < groups.count; ++g) {
      const int64_t end = (g + 1) * kSide;
      groups.values[g] = here.values[g * kSide];
      if (t.block_size % kSide == 0 && end <= visible) continue;
      char* out = reinterpret_cast<char*>(s.keys) + g * kSide * row_bytes;
      groups.values[g] = out;
      for (int64_t j = g * kSide; j < end; ++j, out += row_bytes) {
        if (j < visible) {
          __builtin_memcpy(out, here.values[j], static_cast<size_t>(row_bytes));
        } else {
          __builtin_memset(out, 0, static_cast<size_t>(row_bytes));
        }
      }
    }
  }

  static void split_weights(const float* weights, int64_t visible, int64_t row, Weights& out) {
    const __m512i top = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
    const __m512i half = _mm512_set1_epi32(0x8000);
#pragma GCC unroll 4
    for (int64_t g = 0; g < kGroups; ++g) {
      const Vec weight = g * kSide < visible ? load(weights + g * kSide) : broadcast(0.0f);
      const __m512i high = _mm512_and_si512(_mm512_castps_si512(weight.r), top);
      const __m512i rest = _mm512_castps_si512(sub(weight, {_mm512_castsi512_ps(high)}).r);
      const __m512i low = _mm512_add_epi32(rest, half);
      _mm512_store_si512(out.high[g][row], _mm512_srli_epi32(high, 16));
      _mm512_store_si512(out.high[g][kRows + row], high);
      _mm512_store_si512(out.low[g][row], _mm512_srli_epi32(low, 16));
      _mm512_store_si512(out.low[g][kRows + row], _mm512_and_si512(low, top));
    }
  }

  struct Product {
    const Weights& weights;
    const Groups& groups;
    int64_t column;
  };

  // kBlocks blocks of columns.
  template <int kBlocks>
  static void add_columns(const AttentionTile& t, const AttentionScratch& s, float* records, const Rows& rows,
                          const Product& product, Ahead& ahead) {
    alignas(64) float sums[kBlocks][2 * kRows][kSide];  // even columns of the rows, then odd
    Tiles::order_memory();
    multiply<kBlocks>(t, product, &sums[0][0][0], ahead);
    Tiles::order_memory();
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      if (visible_to(t, i, rows.first) <= 0) continue;
      float* out = records + i * s.record + kRecordHead + product.column;
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b, out += kBlock) {
        store(out, avx512::add(load(out), load(sums[b][i - rows.begin])));
        store(out + kLanes, avx512::add(load(out + kLanes), load(sums[b][kRows + i - rows.begin])));
      }
    }
  }

  template <int kBlocks>
  static void multiply(const AttentionTile& t, const Product& product, float* sums, Ahead& ahead) {
    static_assert(kBlocks == 1 || kBlocks == 2 || kBlocks == 4);
    const int64_t stride = 2 * t.head_dim;
    _tile_zero(0);
    if constexpr (kBlocks >= 2) _tile_zero(1);
    if constexpr (kBlocks == 4) _tile_zero(2);
    if constexpr (kBlocks == 4) _tile_zero(3);
    for (int64_t g = 0; g < product.groups.count; ++g) {
      const char* values = product.groups.values[g] + 2 * product.column;
      _tile_loadd(4, product.weights.high[g], 64);
      _tile_loadd(5, product.weights.low[g], 64);
      _tile_loadd(6, values, stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(0, 5, 6);
      if constexpr (kBlocks >= 2) {
        _tile_loadd(7, values + 64, stride);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(1, 5, 7);
      }
      if constexpr (kBlocks == 4) {
        ahead.pace(2 * kProductSteps);
        _tile_loadd(6, values + 128, stride);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(2, 5, 6);
        _tile_loadd(7, values + 192, stride);
        _tile_dpbf16ps(3, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
      ahead.pace((kBlocks == 1 ? 1 : 2) * kProductSteps);
    }
    constexpr int64_t kRegister = kSide * kSide;
    _tile_stored(0, sums, 64);
    if constexpr (kBlocks >= 2) _tile_stored(1, sums + kRegister, 64);
    if constexpr (kBlocks == 4) _tile_stored(2, sums + 2 * kRegister, 64);
    if constexpr (kBlocks == 4) _tile_stored(3, sums + 3 * kRegister, 64);
  }
};

}  // namespace troupe::cpu::avx512
