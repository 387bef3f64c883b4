#pragma once

// Cosines and sines of the rotary embedding for every position of a model, equal to Transformers' numbers
// (modeling_rope_utils.py). The types of scaling only change the frequencies; yarn adds a factor.

#include <vector>

#include "kernels/tensor.h"
#include "worker/model/config.h"

namespace troupe {

// Returns (C / 2) radians a position. `position_count` is the length of the longest sequence: 'dynamic'
// derives its base from it once, because cached keys must stay valid. (Transformers derives it from each
// sequence's length, so the two agree at that length, and up to max_position_embeddings if position_count is
// no larger than that.)
std::vector<float> rope_frequencies(const ModelConfig& config, int64_t position_count);

// Fills `table` (positions, C) float32, host memory: cos in [0, C/2), sin in [C/2, C) of position ·
// frequency. REQUIRES: the model rotates.
void fill_rope_table(const ModelConfig& config, const Tensor& table);

}  // namespace troupe
