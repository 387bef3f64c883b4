#pragma once

// A request's sampling parameters, with the meaning of kernels/sampling.h: the backend draws next to the
// logits.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/sampling.h"
#include "worker/schedule/request.h"

namespace troupe {

struct SamplingParams {
  // The fields of DrawParams.
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;
  // Applied by LogitAdjuster before the parameters above.
  float repetition_penalty = 1.0f;                         // > 0; 1: off
  float presence_penalty = 0.0f;                           // 0: off
  float frequency_penalty = 0.0f;                          // 0: off
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // ids of the vocabulary, none twice
};

DrawParams draw_params(const SamplingParams& params, uint64_t position);

// The seed of one of several answers to a prompt: the first keeps the request's own, so it equals the answer
// of a request with one choice.
uint64_t choice_seed(uint64_t seed, uint32_t choice);

// Uniform in [0, 1) with 53 bits.
double counter_uniform(uint64_t seed, uint64_t position);

// Calls draw_token() with a request's parameters.
TokenId sample_token(std::span<const float> logits, const SamplingParams& params, uint64_t position);

}  // namespace troupe
