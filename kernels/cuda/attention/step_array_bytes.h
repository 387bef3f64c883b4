#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/step/step_arrays.h"

namespace troupe::cuda {

// The greatest length of each array of a step within the limits. Edits of logits have no such bound: theirs
// is what many requests come to.
using ArrayBytes = std::vector<std::pair<StepArray, int64_t>>;
ArrayBytes step_array_bytes(const AttentionLimits& limits, int32_t piece_keys, int64_t block_size);
// The bytes of all of them side by side (StepArrays::reserve_whole).
int64_t whole_step_bytes(const ArrayBytes& arrays);

}  // namespace troupe::cuda
