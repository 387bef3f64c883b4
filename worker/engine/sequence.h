#pragma once

// The compute thread's state of one request besides the scheduler's: how its tokens are drawn, when they end,
// and which log-probabilities are reported. Compute thread only.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/answer_grammar.h"
#include "worker/engine/engine.h"
#include "worker/engine/forced_tokens.h"
#include "worker/engine/pooling.h"
#include "worker/engine/provisional_answer.h"
#include "worker/engine/thinking_budget.h"
#include "worker/model/log_softmax.h"
#include "worker/model/logit_adjuster.h"

namespace troupe {

// How many of the last emitted tokens are drawn once more: those whose log-probabilities were not sent, or
// all where a draw has a state that comes of those before it.
int32_t redrawn_count(const EngineRequest& request, const SamplingParams& sampling);

class Sequence {
 public:
  // Moves from `request` what it needs. `tokenizer` must outlive this. REQUIRES: request.prompt is still
  // there.
  Sequence(EngineRequest& request, const Tokenizer* tokenizer);

  // Parameters that draw the answer's token at `position`; valid until accept(). `last_drawn`: the row,
  // within the step before, of the preceding token if that was not accepted yet; else below zero.
  SampleRow draw_at(uint64_t position, int32_t last_drawn);
  // Whether the token before a draw must be accepted before it, and the draw collected before the next one.
  bool needs_last() const {
    return has_state() || grammar_ != nullptr || (adjuster_ != nullptr && adjuster_->needs_last()) ||
           (thinking_ != nullptr && thinking_->may_force_within(1));
  }
  // Null: any token may come. Else its mask is to be filled before the row of a draw is drawn from.
  GrammarState* grammar() { return grammar_.get(); }
  // Whether score() will be called for the token at `position`.
  bool is_scored(uint64_t position) const {
    return !prompt_only_ && logprobs_.has_value() && position >= scored_from_;
  }
  // Null: every token is drawn.
  const ForcedRun* forced_run() const { return forced_run_.get(); }
  // The token that must come next, at `position`, by the answer's grammar; it is then not drawn. REQUIRES:
  // forced_run()
  std::optional<TokenId> forced(uint64_t position);
  // Appends the token at `position` to the history and returns it: the known one, if already sent, the one
  // that ends the thoughts where that must come, the forced() one, or `drawn`.
  TokenId accept(TokenId drawn, uint64_t position);
  // The token's log-probability under the model's logits. REQUIRES: logprobs are reported
  TokenScore score(std::span<const float> logits, TokenId token) const;
  // Hands on what accept() took in: appends to `released` the events that may go out, which for a provisional
  // answer may be others, or none, and the answer's end where its grammar has nothing more. `result`: of the
  // token; says what is settled or taken back, and whether the answer has ended.
  void settle(TokenEvent event, uint64_t position, StepToken& result, std::vector<TokenEvent>& released);
  // The answer has ended: appends the events that were held.
  void release_all(std::vector<TokenEvent>& released);
  // Changes as tokens are taken back (ProvisionalAnswer).
  uint32_t rewind_count() const { return provisional_ == nullptr ? 0 : provisional_->rewind_count(); }
  // Whether `token` ends the answer: as the model's own end, which counts first, or as the request's.
  enum class End : uint8_t { kNone, kModel, kRequest };
  End end_at(TokenId token, const std::vector<int32_t>& eos_token_ids) const;

  // How far its logits are led away from those of its companion (guidance.h). REQUIRES: it has one
  double guidance_scale() const { return guidance_scale_; }
  // Nothing is emitted: the prompt is computed, and scored if requested.
  bool prompt_only() const { return prompt_only_; }
  // Position of the first token drawn: after the emitted tokens of a resumed answer.
  uint64_t first_position() const { return first_position_; }
  int32_t cached_count = 0;  // tokens found cached

  // Scores the prompt's next unscored id; `logits` belong to the row before it (BatchItem::scored).
  void add_prompt_score(std::span<const float> logits);
  // Null: no vector is made of its prompt. Else its rows are to be added in order.
  Pooler* pooler() { return pooler_ ? &*pooler_ : nullptr; }
  // Called once, when all scores are there; empty if none were requested.
  std::vector<TokenScore> take_prompt_scores();

 private:
  bool is_known(uint64_t position) const { return position - first_position_ < known_.size(); }
  bool ends_thought() const { return thinking_ != nullptr && thinking_->forced().has_value(); }
  bool is_banned(TokenId token, uint64_t position);
  // After tokens were taken back: history and state are those of what is left.
  void rewind();
  // Whether a draw moves something on that the next one needs.
  bool has_state() const { return sampling_.chain.has_value() && sampling_.chain->mirostat != 0; }

  void settle_token(TokenEvent event, uint64_t position, StepToken& result,
                    std::vector<TokenEvent>& released);

  std::unique_ptr<GrammarState> grammar_;
  std::unique_ptr<ForcedRun> forced_run_;           // null: every token is drawn
  std::unique_ptr<ThinkingBudget> thinking_;        // null: thoughts have no bound
  std::unique_ptr<ProvisionalAnswer> provisional_;  // null: a token that was drawn stays
  SamplingParams sampling_;
  float mirostat_mu_ = 0;
  std::unique_ptr<LogitAdjuster> adjuster_;  // null: logits stay as they are
  // After tokens were taken back: the edits of the next draw, what is banned there included.
  struct Redraw {
    std::vector<LogitEdit> edits;
    uint64_t position = ~uint64_t{0};
  } redraw_;
  std::vector<int32_t> stop_token_ids_;
  bool ignore_eos_ = false;
  bool prompt_only_ = false;
  double guidance_scale_ = 1;
  uint64_t first_position_ = 0;
  std::vector<TokenId> known_;  // already sent, from first_position_ on, and drawn once more
  uint64_t scored_from_ = 0;    // the first position whose log-probability was not sent
  std::optional<int32_t> logprobs_;
  std::optional<Pooler> pooler_;
  std::vector<TokenId> scored_prompt_;     // empty: not to be scored, or done
  std::vector<TokenScore> prompt_scores_;  // scores of its leading ids
};

}  // namespace troupe
