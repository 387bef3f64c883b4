#pragma once

// What the compute thread keeps of one request besides the scheduler's part: how its tokens are drawn, when
// they end, and what is told of their probabilities. Compute thread only.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/model/log_softmax.h"
#include "worker/model/logit_adjuster.h"

namespace troupe {

class Sequence {
 public:
  // Takes what it needs; REQUIRES: request.prompt is still there.
  explicit Sequence(EngineRequest& request);

  // How the token at `position` of the answer is drawn. Valid until accept(). `last_drawn`: the place, in the
  // step before, of the token before it, where that was not accepted yet; else below zero.
  SampleRow draw_at(uint64_t position, int32_t last_drawn) const;
  // Whether score() will be asked for.
  bool is_scored() const { return !prompt_only_ && logprobs_.has_value(); }
  // The token at `position`: the drawn one, or where it is known that one. From now on it is part of the
  // history.
  TokenId accept(TokenId drawn, uint64_t position);
  // What is told of a token's probability by the model's logits. REQUIRES: is_scored()
  TokenScore score(std::span<const float> logits, TokenId token) const;
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
  bool is_known(uint64_t position) const { return position - first_position_ < known_.size(); }

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
