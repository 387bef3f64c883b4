#pragma once

// Parameters and checks of Backend::gather_rows(). T rows of width D, S of them sample. Violated shapes or
// ranges end the process.

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace troupe {

// out[i] = x[rows[i]]: the last rows of the requests that sample
struct GatherRowsParams {
  Tensor x;                       // (T, D) float32
  std::span<const int32_t> rows;  // (S)
  Tensor out;                     // (S, D) float32
};

void check_params(const GatherRowsParams& params);

}  // namespace troupe
