#pragma once

#include "kernels/tensor.h"

namespace troupe {

// out = x / sqrt(mean(x²) + epsilon) * weight       (source: Zhang & Sennrich 2019, as in Transformers'
// LlamaRMSNorm)
struct RmsNormParams {
  Tensor x;       // (T, D) float32
  Tensor weight;  // (D) float32, which upload() wrote, no op
  float epsilon = 1e-5f;
  Tensor out;  // (T, D) activation
};

void check_params(const RmsNormParams& params, DType activation);
// That an op's x is what the norm before it gives.
void check_normed(const char* op, const RmsNormParams& norm, const Tensor& x);

}  // namespace troupe
