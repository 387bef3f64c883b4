#pragma once

// What the compute thread keeps of one request besides the scheduler's part: how its tokens are drawn, when
// they end, and what is told of their probabilities. Compute thread only.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine.h"
#include "worker/model/log_softmax.h"
#include "worker/model/logit_adjuster.h"

namespace troupe {

class Sequence {
 public:
  // Takes what it needs; REQUIRES: request.prompt is still there.
  explicit Sequence(EngineRequest& request);

  // The token at `position` of the answer (where that is known, that one), which from now on is part of its
  // history. `logits` may be changed; `scratch` is memory of the caller's. `score` is filled if
  // log-probabilities are asked for.
  TokenId draw(std::span<float> logits, uint64_t position, std::vector<float>& scratch,
               std::unique_ptr<TokenScore>& score);
  // Whether `token` ends the answer.
  bool stops(TokenId token, const std::vector<int32_t>& eos_token_ids) const;

  // Nothing is emitted: the prompt is computed, and scored if that was asked for.
  bool prompt_only() const { return prompt_only_; }
  // Of the first token that is drawn: behind those of an answer that goes on.
  uint64_t first_position() const { return first_position_; }
  int32_t cached_count = 0;  // tokens found cached

  // Of the next id of the prompt that has none; `logits` are of the row before it (BatchItem::scored).
  void add_prompt_score(std::span<const float> logits);
  // Once, when all are there; empty where none were asked for.
  std::vector<TokenScore> take_prompt_scores();

 private:
  SamplingParams sampling_;
  std::unique_ptr<LogitAdjuster> adjuster_;  // null: logits stay as they are
  std::vector<int32_t> stop_token_ids_;
  bool ignore_eos_ = false;
  bool prompt_only_ = false;
  uint64_t first_position_ = 0;
  std::vector<TokenId> known_;  // from there on: told already, but not their log-probabilities
  std::optional<int32_t> logprobs_;
  std::vector<TokenId> scored_prompt_;     // empty: not to be scored, or done
  std::vector<TokenScore> prompt_scores_;  // of its leading ids
};

}  // namespace troupe
