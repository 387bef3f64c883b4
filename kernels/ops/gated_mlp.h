#pragma once

#include "kernels/ops/weight.h"
#include "kernels/tensor.h"

namespace troupe {

// sum += down · (silu(gate · x) * (up · x)), rounded where the three ops it stands for would round
struct GatedMlpParams {
  Tensor x;                               // (T, D) activation
  const PackedWeight* gate_up = nullptr;  // (2F, D): gate over up
  const PackedWeight* down = nullptr;     // (D, F)
  Tensor sum;                             // (T, D) float32
  Tensor mixed;                           // (T, 2F) activation: scratch, of no meaning afterwards
  Tensor gated;                           // (T, F) activation: likewise
  Tensor gate_up_bias = {};               // (2F) float32, or empty
  Tensor down_bias = {};                  // (D) float32, or empty
};

void check_params(const GatedMlpParams& params, DType activation);

}  // namespace troupe
