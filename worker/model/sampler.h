#pragma once

// A request's sampling parameters, with the meaning of kernels/sampling.h: the backend draws next to the
// logits.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/dry.h"
#include "kernels/sampler_chain.h"
#include "kernels/sampling.h"
#include "worker/schedule/request.h"

namespace troupe {

// Samplers that read the prompt and the answer so far, or the answer's length. Ids are of the vocabulary.
struct HistorySamplers {
  // The repetition penalty is that of the last `repetition_range` tokens (0: all). In their older half it is
  // 1 + (penalty - 1) · slope where it is above 1 (koboldcpp); over the `repetition_decay` tokens before them
  // it falls to 1 (exllama).
  int32_t repetition_range = 0;
  float repetition_slope = 1.0f;
  int32_t repetition_decay = 0;
  DryParams dry = {};
  std::vector<TokenId> banned = {};
  // The last token of each is banned where the others are the last ones of the history. None is shorter than
  // two.
  std::vector<std::vector<TokenId>> banned_sequences = {};
  // Banned in an answer of fewer tokens.
  int32_t min_tokens = 0;
  std::vector<TokenId> banned_early = {};

  bool has_window() const { return repetition_range > 0 || repetition_slope != 1.0f || repetition_decay > 0; }
};

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
  HistorySamplers history = {};
  std::optional<SamplerChain> chain = std::nullopt;  // none: the parameters above alone
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
