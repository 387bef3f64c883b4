#pragma once

// What an attention's launches read of a step's small arrays, on the device.

#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/step/step_arrays.h"

namespace troupe::cuda {

// Without token_requests, which plain_attention alone reads.
AttentionIndices indices_on_device(StepArrays& arrays, const AttentionParams& params);
// `plan` is referred to. `partials`: partial_floats() of them.
PlannedAttention plan_on_device(StepArrays& arrays, const AttentionPlan& plan, float* partials);

}  // namespace troupe::cuda
