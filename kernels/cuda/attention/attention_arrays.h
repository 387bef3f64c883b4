#pragma once

// The part of a step's small arrays that an attention's launches read, on the device.

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/step/step_arrays.h"

namespace troupe::cuda {

// Without token_requests, which plain_attention alone reads.
AttentionIndices indices_on_device(StepArrays& arrays, const AttentionParams& params);
// `plan` is referred to. `partials`: partial_floats() of them.
PlannedAttention plan_on_device(StepArrays& arrays, const AttentionPlan& plan, float* partials);

}  // namespace troupe::cuda
