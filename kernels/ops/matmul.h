#pragma once

#include "kernels/ops/weight.h"
#include "kernels/tensor.h"

namespace troupe {

// out = x · weightᵀ (+ bias) (+ out if accumulate), rounded to out's type once
struct MatmulParams {
  Tensor x;                              // (T, K) activation
  const PackedWeight* weight = nullptr;  // (N, K)
  Tensor out;                            // (T, N): activation, or float32
  bool accumulate = false;               // out float32 only: the residual add
  Tensor bias = {};  // (N) float32, added to every row; or empty. What upload() wrote, no op.
};

void check_params(const MatmulParams& params, DType activation);

}  // namespace troupe
