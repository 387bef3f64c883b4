// Written once, compiled per instruction set (see math_body.h): int8 products (int8.h says what they mean).
// Four consecutive k of a feature lie side by side, so that one instruction (or a few) adds four products to
// each 32-bit lane. Sums are integers: exact, so every instruction set and every order gives the same bits.
//
// x comes as 128 + value. VNNI multiplies unsigned by signed bytes and takes it as it is; the 128 · Σ_k w it
// adds is known from the packing and taken off at the end. Without VNNI the byte products are
// added in pairs with saturation at 16 bits, which |x| · ±w, at most 2 · 127 · 127, never reaches.
//
// What multiplies is QuadDot, named before this is included: twice for AVX-512, as a function compiled
// without VNNI cannot take in one that is compiled with it.
//
// A panel is taken in stretches of k that stay in the L1 cache while all rows pass over them.

inline constexpr int kQuadVectors = static_cast<int>(kQuadColumns) / kLanes;
inline constexpr int kQuadTogether = kLanes == 16 ? 4 : 2;  // vectors of a panel in registers at a time
inline constexpr int kQuadRows = kLanes == 16 ? 6 : 3;
inline constexpr int64_t kQuadStretch = 128;  // of 4 k: 32 KiB of a panel
inline constexpr int64_t kQuadAhead = 4096;   // bytes

// Steps [begin, end) of k / 4.
struct QuadStretch {
  int64_t begin;
  int64_t end;
  bool first;  // the sums start at zero
  bool last;   // the results are written
};

// The part of the product: rows from m on, vectors from `vector` on.
struct QuadPlace {
  int64_t m;
  int vector;
};

template <int kRows>
inline void put_quads(const QuadProduct& product, QuadPlace at, bool last,
                      const IntVec (*sums)[kQuadTogether]) {
  for (int i = 0; i < kRows; ++i) {
    int32_t* kept = product.sums + (at.m + i) * kQuadColumns + at.vector * kLanes;
    if (!last) {
      for (int v = 0; v < kQuadTogether; ++v) store_ints(kept + v * kLanes, sums[i][v]);
      continue;
    }
    const Vec row_scale = broadcast(product.x_scales[at.m + i]);
    Vec values[kQuadTogether];
    for (int v = 0; v < kQuadTogether; ++v) {
      const int64_t column = (at.vector + v) * kLanes;
      const Vec scale = mul(row_scale, load(product.scales + column));
      values[v] = mul(to_floats(without(sums[i][v], product.column_sums + column, QuadDot::kOffset)), scale);
    }
    PanelOut to = product.out;
    const int64_t first = at.vector * kLanes;
    to.columns -= first;
    if (to.bias != nullptr) to.bias += first;
    to.data = static_cast<char*>(to.data) + first * (to.dtype == DType::kBFloat16 ? 2 : 4);
    finish_panel_row<kQuadTogether>(to, at.m + i, values);
  }
}

template <int kRows>
inline void quad_rows(const QuadProduct& product, QuadPlace at, const QuadStretch& stretch) {
  IntVec sums[kRows][kQuadTogether];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    const int32_t* kept = product.sums + (at.m + i) * kQuadColumns + at.vector * kLanes;
#pragma GCC unroll 4
    for (int v = 0; v < kQuadTogether; ++v)
      sums[i][v] = stretch.first ? zero_ints() : load_ints(kept + v * kLanes);
  }
  const uint8_t* x = product.x + at.m * product.quads * 4;
  const int8_t* panel = product.panel + at.vector * kLanes * 4;
  for (int64_t q = stretch.begin; q < stretch.end; ++q) {
    IntVec weights[kQuadTogether];
#pragma GCC unroll 4
    for (int v = 0; v < kQuadTogether; ++v) {
      const int8_t* place = panel + q * kQuadColumns * 4 + v * kLanes * 4;
      weights[v] = load_ints(place);
      if (at.m == 0) _mm_prefetch(reinterpret_cast<const char*>(place) + kQuadAhead, _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      int32_t quad;
      __builtin_memcpy(&quad, x + (i * product.quads + q) * 4, 4);
      const IntVec values = broadcast_int(quad);
#pragma GCC unroll 4
      for (int v = 0; v < kQuadTogether; ++v) sums[i][v] = QuadDot::dot(sums[i][v], values, weights[v]);
    }
  }
  // A copy for others to see: the sums themselves have no address and stay in registers.
  IntVec results[kRows][kQuadTogether];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kQuadTogether; ++v) results[i][v] = sums[i][v];
  }
  put_quads<kRows>(product, at, stretch.last, results);
}

inline void quad_product(const QuadProduct& product) {
  const int64_t length = product.rows <= kQuadRows ? product.quads : kQuadStretch;
  for (int64_t begin = 0; begin < product.quads; begin += length) {
    const int64_t end = begin + length < product.quads ? begin + length : product.quads;
    const QuadStretch stretch{begin, end, begin == 0, end == product.quads};
    for (int vector = 0; vector < kQuadVectors; vector += kQuadTogether) {
      int64_t m = 0;
      for (; m + kQuadRows <= product.rows; m += kQuadRows)
        quad_rows<kQuadRows>(product, {m, vector}, stretch);
      for (; m + 2 <= product.rows; m += 2) quad_rows<2>(product, {m, vector}, stretch);
      for (; m < product.rows; ++m) quad_rows<1>(product, {m, vector}, stretch);
    }
  }
}
