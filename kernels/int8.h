#pragma once

// Definition of an int8 product, for every backend (WeightFormat::kInt8):
//
//   w8[n][k] = round(w[n][k] / s[n]),  s[n] = max_k |w[n][k]| / 127     once, when packed
//   x8[t][k] = round(x[t][k] / r[t]),  r[t] = max_k |x[t][k]| / 127     at every product
//   out[t][n] = float32(Σ_k x8[t][k] · w8[n][k]) · (r[t] · s[n])
//
// Rounding is to nearest even; "/ s" is a multiplication by 127 / max. A row without a value above
// kQuantizedLeast is zero. The sum is an integer of at most 127² · K, exact in 32 bits for K up to
// kInt8DepthMax.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/tensor.h"

namespace troupe {

inline constexpr float kQuantizedLeast = 1e-30f;  // 127 / it is finite
inline constexpr int64_t kInt8DepthMax = 65536;  // 255 · 127 · K < 2³¹: 255 as some backends keep x unsigned

// One row of K values to 8 bits; returns its scale. What is not finite becomes 0 (its row's products are then
// meaningless, as they would be anyway).
inline float quantize_row(const float* row, int64_t columns, int8_t* out) {
  float most = 0;
  for (int64_t k = 0; k < columns; ++k) most = std::max(most, std::abs(row[k]));
  const bool some = most > kQuantizedLeast;
  const float inverse = some ? 127.0f / most : 0.0f;
  for (int64_t k = 0; k < columns; ++k) {
    const float rounded = std::nearbyint(row[k] * inverse);
    out[k] = std::abs(rounded) <= 127.0f ? static_cast<int8_t>(rounded) : int8_t{0};
  }
  return some ? most / 127.0f : 0.0f;
}

}  // namespace troupe
