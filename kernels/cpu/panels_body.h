// Written once, compiled per instruction set (see math_body.h): products where neither oneDNN's kernels nor
// the pairs of AVX512-BF16 can be used (products.cc). out[m][n] is one chain of multiply-adds over k
// ascending, held in one lane of one register from start to end: no blocking of rows or columns can change a
// bit of it.
//
// kPanelRows × kPanelVectors accumulators fill the registers; each step of k reads one row of the panel and
// one element of every x row. Flops 2·M·N·K, bytes of weight N·K once per kPanelRows rows of x.

inline constexpr int kPanelVectors = 4;
inline constexpr int kPanelRows = kLanes == 16 ? 6 : 3;
inline constexpr int kPanelColumns = kPanelVectors * kLanes;

template <int kVectors, typename T>
inline void finish_panel_row_as(const PanelOut& to, int64_t m, const Vec* sums) {
  T* out = static_cast<T*>(to.data) + m * to.stride;
  for (int v = 0; v < kVectors; ++v) {
    const int64_t left = to.columns - v * kLanes;
    if (left <= 0) return;
    Vec value = sums[v];
    if (to.bias != nullptr) value = add(value, load_up_to(to.bias + v * kLanes, left));
    if (to.accumulate) value = add(value, load_up_to(out + v * kLanes, left));
    store_up_to(out + v * kLanes, value, left);
  }
}

// Row m of a panel's sums to its place.
template <int kVectors>
inline void finish_panel_row(const PanelOut& to, int64_t m, const Vec* sums) {
  if (to.dtype == DType::kBFloat16) {
    finish_panel_row_as<kVectors, BFloat16>(to, m, sums);
  } else {
    finish_panel_row_as<kVectors, float>(to, m, sums);
  }
}

template <int kRows, typename W>
inline void panel_rows(const PanelProduct& product, const W* panel, int64_t m) {
  Vec sums[kRows][kPanelVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVectors; ++v) sums[i][v] = broadcast(0.0f);
  }
  const float* x = static_cast<const float*>(product.x) + m * product.depth;
  for (int64_t k = 0; k < product.depth; ++k) {
    Vec weights[kPanelVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVectors; ++v) weights[v] = load(panel + k * kPanelColumns + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec scalar = broadcast(x[i * product.depth + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kPanelVectors; ++v) sums[i][v] = fma(scalar, weights[v], sums[i][v]);
    }
  }
  for (int i = 0; i < kRows; ++i) finish_panel_row<kPanelVectors>(product.out, m + i, sums[i]);
}

template <typename W>
inline void panel_product_as(const PanelProduct& product) {
  const W* panel = static_cast<const W*>(product.panel);
  int64_t m = 0;
  for (; m + kPanelRows <= product.rows; m += kPanelRows) panel_rows<kPanelRows>(product, panel, m);
  for (; m < product.rows; ++m) panel_rows<1>(product, panel, m);
}

inline void panel_product(const PanelProduct& product) {
  if (product.weight_dtype == DType::kBFloat16) {
    panel_product_as<BFloat16>(product);
  } else {
    panel_product_as<float>(product);
  }
}
