#pragma once

// From logits to a token: bias and penalties (logit_adjuster.h), then, in Transformers' order, temperature →
// top_k → top_p → min_p → softmax → draw. Pure: the same (logits, params, history, seed, position) gives the
// same token, whatever else is in the batch and whatever was cached. The generator is counter-based: u =
// Philox4x32-10(key = seed, counter = position), so position p of a stream can be drawn without drawing the p
// before it (resume, preemption). Source: Salmon et al., SC'11.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "worker/schedule/request.h"

namespace troupe {

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy (lowest id among equals)
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // smallest set with mass >= top_p
  float min_p = 0.0f;        // tokens with p >= min_p * p_max
  uint64_t seed = 0;
  // What a LogitAdjuster does before any of the above.
  float repetition_penalty = 1.0f;                         // > 0; 1: off
  float presence_penalty = 0.0f;                           // 0: off
  float frequency_penalty = 0.0f;                          // 0: off
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // ids of the vocabulary, none twice
};

// The seed of one of several answers to a prompt: the first has the request's own, so that it is the answer
// that would have come alone.
uint64_t choice_seed(uint64_t seed, uint32_t choice);

// Uniform in [0, 1) with 53 bits.
double counter_uniform(uint64_t seed, uint64_t position);

// Of adjusted logits. REQUIRES: logits not empty. NaNs are treated as -inf; all -inf gives token 0.
TokenId sample_token(std::span<const float> logits, const SamplingParams& params, uint64_t position);

}  // namespace troupe
