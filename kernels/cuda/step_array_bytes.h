#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/step_arrays.h"

namespace troupe::cuda {

// How long each array of a step within the limits may be. Edits of logits have no bound of this kind.
std::vector<std::pair<StepArray, int64_t>> step_array_bytes(const AttentionLimits& limits, int32_t piece_keys,
                                                            int64_t block_size);

}  // namespace troupe::cuda
