#pragma once

// Products with AMX. A panel is 32 output features, a block 32 rows of x; both lie as tile registers take
// them (vector_ops.h), a kibibyte a register, so that no two lines of a register share a set of the L1 cache.
// Two registers of x by two of the panel are four chains of products, every register loaded serving two of
// them: 4 KiB loaded for 64 cycles of arithmetic.
//
// A core multiplies that fast only if one side comes from the L1 cache. So k is taken in stretches of
// kStretchSteps, of which a panel's part (20 KiB) stays there while the blocks of a group pass over it; their
// sums rest in 8 KiB of memory between two stretches. The next panel is asked for meanwhile, a few lines a
// step: asked for all at once it stops the core. What is to be done with the sums (rounding, biases, silu) is
// done a row a step as well, under the next group's products.
//
// out[m][n] is one chain over k ascending, each step adding the sum of its even and the sum of its odd
// products, whatever else is computed: what stands in a register for rows that are missing reaches no other.
//
// Tried and lost (512 rows, K 896): 1 x 4 registers (a tenth slower: 5 loads for 4 products); the sums of all
// rows kept from stretch to stretch (they fall out of the L1 cache: a fifth); x asked for ahead into the L1
// cache (a third: the requests compete with the loads); groups of 4 and 8 blocks, no stretches (a twentieth).
//
// Included by target_avx512.cc under the target of tile_amx.h.

#include "kernels/cpu/tile_amx.h"

namespace troupe::cpu::avx512 {

inline constexpr int64_t kHalfBytes = kTileStepBytes / 2;  // a register
inline constexpr int64_t kHalfSums = kTileSums / 4;

inline constexpr int64_t kGroupBlocks = 2;

// Two registers of x (4, 5) by two of a panel (6, 7): bfloat16, 32 of k a step.
struct PairTiles {
  static void low_low() { _tile_dpbf16ps(0, 4, 6); }
  static void low_high() { _tile_dpbf16ps(1, 4, 7); }
  static void high_low() { _tile_dpbf16ps(2, 5, 6); }
  static void high_high() { _tile_dpbf16ps(3, 5, 7); }
};
// 128 + value by int8, 64 of k a step, into 32-bit integers (quads_body.h).
struct QuadTiles {
  static void low_low() { _tile_dpbusd(0, 4, 6); }
  static void low_high() { _tile_dpbusd(1, 4, 7); }
  static void high_low() { _tile_dpbusd(2, 5, 6); }
  static void high_high() { _tile_dpbusd(3, 5, 7); }
};

// Blocks of rows times panels: sums of a group of blocks, whose bits are integers where Dot makes such.
template <typename Dot>
class TileGroup {
 public:
  TileGroup(const TileBlocks& x, const void* next) : x_(x), next_(static_cast<const char*>(next)) {
    lines_ = (kTileStepBytes / 64 + x.blocks() - 1) / x.blocks();
  }

  // Prefetches these sums as well from now on.
  void ask_for(const float* sums) { next_sums_ = reinterpret_cast<const char*>(sums); }

  // Adds the products of blocks [first, first + count) by a panel to sums, (count, 4 registers), which start
  // at zero if `anew`. Calls meanwhile.step() once a step.
  template <typename Meanwhile>
  void add(int64_t first, int64_t count, const void* panel, float* sums, bool anew, Meanwhile& meanwhile) {
    const int64_t stretches = (x_.steps + kStretchSteps - 1) / kStretchSteps;
    for (int64_t i = 0; i < stretches; ++i) {
      const int64_t begin = x_.steps * i / stretches;
      const int64_t end = x_.steps * (i + 1) / stretches;
      for (int64_t b = 0; b < count; ++b) {
        const char* x = static_cast<const char*>(x_.data) + (first + b) * x_.stride + begin * kTileStepBytes;
        const char* weights = static_cast<const char*>(panel) + begin * kTileStepBytes;
        float* to = sums + b * kTileSums;
        const bool zero = anew && i == 0;
        if (x_.rows - (first + b) * kTileSide <= kTileSide / 2) {
          multiply<1>(x, weights, end - begin, to, zero, meanwhile);
        } else {
          multiply<2>(x, weights, end - begin, to, zero, meanwhile);
        }
      }
    }
  }

 private:
  static constexpr int64_t kStretchSteps = 10;
  static constexpr int64_t kAheadBytes = 4096;
  static constexpr int64_t kSumsLines = 2;  // a step: a block's sums are 64 lines

  // kHalves: 32 rows, or 16.
  template <int kHalves, typename Meanwhile>
  void multiply(const char* x, const char* weights, int64_t steps, float* sums, bool zero,
                Meanwhile& meanwhile) {
    zero ? start<kHalves>() : resume<kHalves>(sums);
    for (int64_t step = 0; step < steps; ++step, x += kTileStepBytes, weights += kTileStepBytes) {
      _tile_loadd(4, x, 64);
      _tile_loadd(6, weights, 64);
      Dot::low_low();
      _tile_loadd(7, weights + kHalfBytes, 64);
      Dot::low_high();
      if constexpr (kHalves == 2) {
        _tile_loadd(5, x + kHalfBytes, 64);
        Dot::high_low();
        Dot::high_high();
      }
      ask_ahead(weights);
      meanwhile.step();
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + kHalfSums, 64);
    if constexpr (kHalves == 2) {
      _tile_stored(2, sums + 2 * kHalfSums, 64);
      _tile_stored(3, sums + 3 * kHalfSums, 64);
    }
    Tiles::order_memory();
  }

  template <int kHalves>
  static void start() {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kHalves == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  template <int kHalves>
  static void resume(const float* sums) {
    Tiles::order_memory();
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + kHalfSums, 64);
    if constexpr (kHalves == 2) {
      _tile_loadd(2, sums + 2 * kHalfSums, 64);
      _tile_loadd(3, sums + 3 * kHalfSums, 64);
    }
  }

  // One block reads the panel as it comes from memory; more blocks find it prefetched by the one before.
  void ask_ahead(const char* weights) {
    if (x_.blocks() == 1) {
      for (int64_t b = 0; b < kTileStepBytes; b += 64) _mm_prefetch(weights + kAheadBytes + b, _MM_HINT_T0);
      return;
    }
    for (int64_t i = 0; i < lines_; ++i, next_ += 64) _mm_prefetch(next_, _MM_HINT_T1);
    if (next_sums_ == nullptr) return;
    for (int64_t i = 0; i < kSumsLines; ++i, next_sums_ += 64) _mm_prefetch(next_sums_, _MM_HINT_T1);
  }

  const TileBlocks& x_;
  const char* next_sums_ = nullptr;
  const char* next_;
  int64_t lines_;  // of next_ a step
};

// Row i of a block's sums.
struct TileRow {
  Vec low;
  Vec high;
  static TileRow of(const float* sums, int64_t i) {
    const float* at = sums + i / kLanes * 2 * kHalfSums + i % kLanes * kLanes;
    return {load(at), load(at + kHalfSums)};
  }
};

inline void finish_row(const PanelOut& to, int64_t m, TileRow row) {
  if (to.dtype != DType::kBFloat16 || to.columns != kTileSide) {
    const Vec vectors[2] = {row.low, row.high};
    return finish_panel_row<2>(to, m, vectors);
  }
  if (to.bias != nullptr) {
    row.low = add(row.low, load(to.bias));
    row.high = add(row.high, load(to.bias + kLanes));
  }
  _mm512_storeu_si512(static_cast<BFloat16*>(to.data) + m * to.stride,
                      (__m512i)_mm512_cvtne2ps_pbh(row.high.r, row.low.r));
}

// Prefetches the memory that finish_row() writes.
inline void ask_row(const PanelOut& to, int64_t m) {
  const int64_t size = to.dtype == DType::kBFloat16 ? 2 : 4;
  const char* out = static_cast<const char*>(to.data) + m * to.stride * size;
  for (int64_t b = 0; b < to.columns * size; b += 64) _mm_prefetch(out + b, _MM_HINT_T0);
}

// Finishes the sums of a group, a row at each step of the next group's products, which leave the vector units
// idle. The memory that a row is written to is prefetched some steps before.
template <typename Finish, typename Ask>
class Finishing {
 public:
  Finishing(Finish finish, Ask ask) : finish_(finish), ask_(ask) {}
  void begin(int64_t first_row, int64_t rows, int64_t buffer) {
    rest();
    row_ = first_row;
    end_ = first_row + rows;
    at_ = 0;
    buffer_ = buffer;
    for (int64_t m = row_; m < row_ + kAheadRows && m < end_; ++m) ask_(m);
  }
  void step() {
    if (row_ >= end_) return;
    if (row_ + kAheadRows < end_) ask_(row_ + kAheadRows);
    finish_(row_++, buffer_, at_++);
  }
  void rest() {
    while (row_ < end_) step();
  }

 private:
  static constexpr int64_t kAheadRows = 12;

  Finish finish_;  // (row, buffer, row within the buffer)
  Ask ask_;        // (row)
  int64_t row_ = 0;
  int64_t end_ = 0;
  int64_t at_ = 0;
  int64_t buffer_ = 0;
};

// Rows of the group that begins at block `first`.
inline int64_t group_rows(const TileBlocks& x, int64_t first) {
  const int64_t left = x.rows - first * kTileSide;
  return left < kGroupBlocks * kTileSide ? left : kGroupBlocks * kTileSide;
}

template <typename Dot, typename FinishRow>
inline void tile_product_as(const TileProduct& p, FinishRow finish_row_of) {
  alignas(64) float scratch[2][kGroupBlocks * kTileSums];
  Tiles::configure();
  TileGroup<Dot> group(p.x, p.next);
  const auto finish = [&](int64_t m, int64_t buffer, int64_t at) {
    const int64_t row = m % kTileSide;
    const float* block =
        p.sums != nullptr ? p.sums + m / kTileSide * kTileSums : scratch[buffer] + at / kTileSide * kTileSums;
    finish_row_of(p, m, TileRow::of(block, row));
  };
  Finishing finishing(finish, [&](int64_t m) { ask_row(p.out, m); });
  int64_t buffer = 0;
  for (int64_t first = 0; first < p.x.blocks(); first += kGroupBlocks, buffer ^= 1) {
    const int64_t rows = group_rows(p.x, first);
    float* sums = p.sums == nullptr ? scratch[buffer] : p.sums + first * kTileSums;
    if (!p.first) group.ask_for(sums + kGroupBlocks * kTileSums);
    group.add(first, (rows + kTileSide - 1) / kTileSide, p.panel, sums, p.first, finishing);
    if (p.last) finishing.begin(first * kTileSide, rows, buffer);
  }
  finishing.rest();
  Tiles::release();
}

inline void tile_product(const TileProduct& p) {
  tile_product_as<PairTiles>(
      p, [](const TileProduct& product, int64_t m, TileRow row) { finish_row(product.out, m, row); });
}

// Scales and writes as put_quads() would.
inline void finish_quad_row(const TileProduct& p, int64_t m, TileRow row) {
  const Vec row_scale = broadcast(p.scales->rows[m]);
  Vec values[2] = {row.low, row.high};
  for (int v = 0; v < 2; ++v) {
    const IntVec sums = without({_mm512_castps_si512(values[v].r)}, p.scales->column_sums + v * kLanes, 128);
    values[v] = mul(to_floats(sums), mul(row_scale, load(p.scales->columns + v * kLanes)));
  }
  finish_panel_row<2>(p.out, m, values);
}

inline void tile_quad_product(const TileProduct& p) {
  tile_product_as<QuadTiles>(p, finish_quad_row);
}

inline void tile_quad_row(const TileProduct& p) {
  constexpr int64_t kAheadBytes = 4096;
  const char* x = static_cast<const char*>(p.x.data);
  const char* weights = static_cast<const char*>(p.panel);
  __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int64_t step = 0; step < p.x.steps; ++step, x += kTileStepBytes, weights += kTileStepBytes) {
#pragma GCC unroll 16
    for (int quad = 0; quad < kLanes; ++quad) {
      int32_t four;
      __builtin_memcpy(&four, x + 4 * quad, 4);
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const char* at = weights + v * kHalfBytes + quad * 64;
        _mm_prefetch(at + kAheadBytes, _MM_HINT_T0);
        sums[v] = _mm512_dpbusd_epi32(sums[v], _mm512_set1_epi32(four), _mm512_loadu_si512(at));
      }
    }
  }
  finish_quad_row(p, 0, {{_mm512_castsi512_ps(sums[0])}, {_mm512_castsi512_ps(sums[1])}});
}

// One row reads a weight once, front to back. The hardware reads ahead, but no further than the page, and in
// the next starts anew: so when a page begins, the first lines of the next are asked for. (More requests of
// our own among the loads, every line some pages ahead, made a row a tenth slower, and asking two pages ahead
// a third.)
inline void ask_next_page(const char* weights) {
  constexpr uintptr_t kPage = 4096;
  if (reinterpret_cast<uintptr_t>(weights) % kPage != 0) return;
#pragma GCC unroll 4
  for (uintptr_t b = 0; b < 256; b += 64) _mm_prefetch(weights + kPage + b, _MM_HINT_T1);
}

// The panel's products by one row, by dots of pairs whose other half is zero: as in a tile register a step's
// even products are one chain, its odd ones another. No register of x is filled for the sake of one row.
inline void tile_row(const TileProduct& p) {
  const char* x = static_cast<const char*>(p.x.data);
  const char* weights = static_cast<const char*>(p.panel);
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t step = 0; step < p.x.steps; ++step, x += kTileStepBytes, weights += kTileStepBytes) {
    ask_next_page(weights);
    __m512 even[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 odd[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    alignas(64) int32_t evens[kLanes];
    alignas(64) int32_t odds[kLanes];
    const __m512i both = _mm512_loadu_si512(x);
    _mm512_store_si512(evens, _mm512_and_si512(both, _mm512_set1_epi32(0xffff)));
    _mm512_store_si512(odds, _mm512_andnot_si512(_mm512_set1_epi32(0xffff), both));
#pragma GCC unroll 16
    for (int pair = 0; pair < kLanes; ++pair) {
      const __m512bh x_even = (__m512bh)_mm512_set1_epi32(evens[pair]);
      const __m512bh x_odd = (__m512bh)_mm512_set1_epi32(odds[pair]);
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const char* at = weights + v * kHalfBytes + pair * 64;
        const __m512bh w = (__m512bh)_mm512_loadu_ps(at);
        even[v] = _mm512_dpbf16_ps(even[v], x_even, w);
        odd[v] = _mm512_dpbf16_ps(odd[v], x_odd, w);
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) sums[v] = _mm512_add_ps(sums[v], _mm512_add_ps(even[v], odd[v]));
  }
  alignas(64) float row[kTileSums];
  _mm512_store_ps(row, sums[0]);
  _mm512_store_ps(row + kHalfSums, sums[1]);
  finish_row(p.out, 0, TileRow::of(row, 0));
}

// Gates row m of two panels' sums as silu_mul would, written as bfloat16 (rounded as finish_row does).
inline void gate_row(const TileGated& g, TileRow gate, TileRow up, BFloat16* out) {
  const auto rounded = [](Vec sum, const float* bias) {
    if (bias != nullptr) sum = add(sum, load(bias));
    const __m512i bits = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(sum.r));
    return Vec{_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
  };
  const float* gates = g.biases[0];
  const float* ups = g.biases[1];
  store(out, silu_times(rounded(gate.low, gates), rounded(up.low, ups)));
  if (gates != nullptr) {
    gates += kLanes;
    ups += kLanes;
  }
  store(out + kLanes, silu_times(rounded(gate.high, gates), rounded(up.high, ups)));
}

inline void tile_gated(const TileGated& g) {
  alignas(64) float sums[2][2][kGroupBlocks * kTileSums];  // by turns; gates, ups
  Tiles::configure();
  TileGroup<PairTiles> gates(g.x, g.next[0]);
  TileGroup<PairTiles> ups(g.x, g.next[1]);
  const auto out = [&](int64_t m) {
    return reinterpret_cast<BFloat16*>(g.out + m / kTileSide * g.out_stride) + m % kTileSide * kTileSide;
  };
  const auto finish = [&](int64_t m, int64_t buffer, int64_t at) {
    const int64_t block = at / kTileSide * kTileSums;
    const int64_t row = m % kTileSide;
    gate_row(g, TileRow::of(sums[buffer][0] + block, row), TileRow::of(sums[buffer][1] + block, row), out(m));
  };
  Finishing finishing(finish, [&](int64_t m) { _mm_prefetch(out(m), _MM_HINT_T0); });
  int64_t buffer = 0;
  for (int64_t first = 0; first < g.x.blocks(); first += kGroupBlocks, buffer ^= 1) {
    const int64_t rows = group_rows(g.x, first);
    const int64_t count = (rows + kTileSide - 1) / kTileSide;
    gates.add(first, count, g.panels[0], sums[buffer][0], true, finishing);
    ups.add(first, count, g.panels[1], sums[buffer][1], true, finishing);
    finishing.begin(first * kTileSide, rows, buffer);
  }
  finishing.rest();
  Tiles::release();
}

inline void arrange_rows(const TileArrange& a) {
  for (int64_t i = 0; i < a.rows; ++i) {
    const char* row = static_cast<const char*>(a.x) + i * a.x_stride;
    char* out = a.out + i * 64;
    int64_t left = a.row_bytes;
    for (int64_t s = 0; s < a.steps; ++s, left -= 64) {
      const __mmask64 some = left >= 64 ? ~uint64_t{0} : ~uint64_t{0} >> (64 - left);
      _mm512_store_si512(out + s * kTileStepBytes, _mm512_maskz_loadu_epi8(some, row + s * 64));
    }
  }
}

}  // namespace troupe::cpu::avx512
