#pragma once

// bfloat16 products with AMX over the panels of pair_panels_avx512.h, whose 16 pairs of k by 16 features are
// a tile register as they lie: 16 rows of x by 32 steps of k times 32 steps of k by 16 features in one
// instruction, four of them a panel. out[m][n] is one chain of them over k ascending, each adding the sum of
// its even and the sum of its odd products, whatever else is computed: rows that are missing to 16 are zeros.
// As there, a panel is taken in stretches of k that stay in the L1 cache while all rows pass over them.
//
// Included by target_avx512.cc, after tile_amx.h, under its target.

namespace troupe::cpu::avx512 {

class TilePanel {
 public:
  explicit TilePanel(const PanelProduct& product) : p_(product), steps_((product.depth + kStep - 1) / kStep) {
    __builtin_memset(x_, 0, sizeof(x_));
    if (p_.depth % kStep == 0) return;
    const int64_t whole = p_.depth / kStep * kSide;  // pairs in whole steps
    const int64_t pairs = (p_.depth + 1) / 2;
    __builtin_memset(last_weights_, 0, sizeof(last_weights_));
    __builtin_memcpy(last_weights_, panel() + whole * kPairBytes,
                     static_cast<size_t>((pairs - whole) * kPairBytes));
  }

  void run() {
    const int64_t length = p_.rows <= kSide ? steps_ : kPairStretch / kStep;
    for (int64_t begin = 0; begin < steps_; begin += length) {
      const int64_t end = begin + length < steps_ ? begin + length : steps_;
      pass<true>(0, begin, end);
      for (int64_t m = kSide; m < p_.rows; m += kSide) pass<false>(m, begin, end);
    }
  }

 private:
  static constexpr int64_t kSide = Tiles::kSide;
  static constexpr int64_t kStep = Tiles::kDepth;  // of k
  static constexpr int64_t kPairBytes = kPanelColumns * 4;
  static constexpr int64_t kVectorBytes = kSide * 4;
  static constexpr int64_t kAheadBytes = 2 * kSide * kPairBytes;  // two steps

  const char* panel() const { return static_cast<const char*>(p_.panel); }

  // Steps [begin, end) of 16 rows, or as many as there are, from row m on. kAhead: this is the pass that
  // brings the panel from memory.
  template <bool kAhead>
  void pass(int64_t m, int64_t begin, int64_t end) {
    const int64_t rows = p_.rows - m < kSide ? p_.rows - m : kSide;
    float* sums = rows == kSide ? p_.sums + m * kPanelColumns : rest_sums_;
    begin == 0 ? start() : resume(sums);
    for (int64_t step = begin; step < end; ++step) {
      if (kAhead) ask_ahead(step);
      multiply(m, rows, step);
    }
    _tile_stored(0, sums, kPairBytes);
    _tile_stored(1, sums + kSide, kPairBytes);
    _tile_stored(2, sums + 2 * kSide, kPairBytes);
    _tile_stored(3, sums + 3 * kSide, kPairBytes);
    Tiles::order_memory();
    if (end < steps_) return;
    for (int64_t i = 0; i < rows; ++i) {
      const float* row = sums + i * kPanelColumns;
      const Vec vectors[4] = {load(row), load(row + kLanes), load(row + 2 * kLanes), load(row + 3 * kLanes)};
      finish_panel_row<4>(p_.out, m + i, vectors);
    }
  }

  static void start() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  static void resume(const float* sums) {
    _tile_loadd(0, sums, kPairBytes);
    _tile_loadd(1, sums + kSide, kPairBytes);
    _tile_loadd(2, sums + 2 * kSide, kPairBytes);
    _tile_loadd(3, sums + 3 * kSide, kPairBytes);
  }

  void ask_ahead(int64_t step) const {
    const char* at = panel() + step * kSide * kPairBytes + kAheadBytes;
    for (int64_t b = 0; b < kSide * kPairBytes; b += 64) _mm_prefetch(at + b, _MM_HINT_T0);
  }

  void multiply(int64_t m, int64_t rows, int64_t step) {
    const bool whole = (step + 1) * kStep <= p_.depth;
    const BFloat16* x = static_cast<const BFloat16*>(p_.x) + m * p_.depth + step * kStep;
    if (whole && rows == kSide) {
      _tile_loadd(4, x, 2 * p_.depth);
    } else {
      const int64_t count = whole ? kStep : p_.depth - step * kStep;
      for (int64_t i = 0; i < rows; ++i) {
        _mm512_store_si512(x_[i],
                           _mm512_maskz_loadu_epi16(~uint32_t{0} >> (kStep - count), x + i * p_.depth));
      }
      Tiles::order_memory();
      _tile_loadd(4, x_, kVectorBytes);
      Tiles::order_memory();
    }
    const char* weights = whole ? panel() + step * kSide * kPairBytes : last_weights_;
    _tile_loadd(5, weights, kPairBytes);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, weights + kVectorBytes, kPairBytes);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, weights + 2 * kVectorBytes, kPairBytes);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, weights + 3 * kVectorBytes, kPairBytes);
    _tile_dpbf16ps(3, 4, 5);
  }

  const PanelProduct& p_;
  const int64_t steps_;
  alignas(64) uint16_t x_[kSide][kStep];  // rows of a step that is not 16 rows of 32; the rest zeros
  alignas(64) char last_weights_[kSide * kPairBytes];   // of a step that is not whole
  alignas(64) float rest_sums_[kSide * kPanelColumns];  // of rows that are no 16
};

inline void tile_product(const PanelProduct& product) {
  Tiles::configure();
  TilePanel(product).run();
  Tiles::release();
}

}  // namespace troupe::cpu::avx512
