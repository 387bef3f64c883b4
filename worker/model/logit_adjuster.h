#pragma once

// What a request asks to change about its logits before a token is drawn from them:
//
//   logit_bias          l += bias                                    (OpenAI; Transformers' SequenceBias)
//   repetition_penalty  l = l > 0 ? l / p : l · p   for ids of prompt and answer  (Transformers, vLLM)
//   frequency_penalty   l -= f · times emitted      for ids of the answer         (OpenAI, vLLM)
//   presence_penalty    l -= p                      for ids of the answer         (OpenAI, vLLM)
//
// in this order, which is vLLM's (v1/sample: logit-bias processor, then apply_penalties: repetition,
// frequency, presence; then temperature and cuts) and for the two that it has Transformers'
// (_get_logits_processor: sequence bias, then repetition penalty, then the warpers). Each touches one logit
// for itself, so only ids seen or biased cost anything, and the order among them does not matter.

#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker/model/sampler.h"

namespace troupe {

// The history of one request. It counts what was emitted, not what was computed: a request that is preempted
// and computed again keeps its counts.
class LogitAdjuster {
 public:
  // Null where `params` leaves the logits as they are.
  static std::unique_ptr<LogitAdjuster> make(const SamplingParams& params, std::span<const TokenId> prompt);

  // REQUIRES: every id of the bias and of the history is in the vocabulary of logits.size().
  void apply(std::span<float> logits) const;
  void add_emitted(TokenId token);

 private:
  LogitAdjuster(const SamplingParams& params, std::span<const TokenId> prompt);

  const float repetition_penalty_, presence_penalty_, frequency_penalty_;
  const std::vector<std::pair<TokenId, float>> logit_bias_;
  absl::flat_hash_map<TokenId, int32_t> emitted_counts_;  // 0: only in the prompt
};

}  // namespace troupe
