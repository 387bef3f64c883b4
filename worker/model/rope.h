#pragma once

// Cosines and sines of the rotary embedding for every position a model can see, in the numbers Transformers
// gets (modeling_rope_utils.py). The types of scaling only change the frequencies; yarn also a factor.

#include <vector>

#include "kernels/tensor.h"
#include "worker/model/config.h"

namespace troupe {

// (C / 2): radians a position. `position_count` is the longest sequence there will be: 'dynamic' takes its
// base from it, once and for all, because cached keys must stay valid (Transformers takes it anew from each
// sequence's length, so the two agree at that length, and up to max_position_embeddings where
// position_count is no more than that).
std::vector<float> rope_frequencies(const ModelConfig& config, int64_t position_count);

// `table` (positions, C) float32, host memory: cos in [0, C/2), sin in [C/2, C) of position · frequency.
// REQUIRES: the model rotates.
void fill_rope_table(const ModelConfig& config, const Tensor& table);

}  // namespace troupe
