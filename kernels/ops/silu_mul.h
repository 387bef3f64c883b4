#pragma once

#include "kernels/tensor.h"

namespace troupe {

// out = silu(gate) * up
struct SiluMulParams {
  Tensor gate_up;  // (T, 2F) activation: gate in columns [0, F), up in [F, 2F)
  Tensor out;      // (T, F) activation
};

void check_params(const SiluMulParams& params, DType activation);

}  // namespace troupe
