#include "worker/engine/sequence.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/core/check.h"

namespace troupe {

namespace {

bool contains(const std::vector<int32_t>& ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

}  // namespace

int32_t redrawn_count(const EngineRequest& request, const SamplingParams& sampling) {
  // μ of a resumed answer comes of all its draws.
  const bool all = sampling.chain && sampling.chain->mirostat != 0;
  return all ? static_cast<int32_t>(request.emitted.size()) : request.unsent_logprobs;
}

Sequence::Sequence(EngineRequest& request, const Tokenizer* tokenizer)
    : sampling_(std::move(request.sampling)),
      adjuster_(LogitAdjuster::make(sampling_, request.prompt)),
      stop_token_ids_(std::move(request.stop_token_ids)),
      ignore_eos_(request.ignore_eos),
      prompt_only_(request.prompt_only),
      guidance_scale_(request.guidance ? request.guidance->scale : 1),
      logprobs_(request.logprobs) {
  if (request.pooling) pooler_.emplace(*request.pooling);
  if (has_state()) mirostat_mu_ = first_mirostat_mu(*sampling_.chain);
  const auto known = request.emitted.end() - redrawn_count(request, sampling_);
  known_.assign(known, request.emitted.end());
  first_position_ = request.emitted.size() - known_.size();
  scored_from_ = request.emitted.size() - static_cast<size_t>(request.unsent_logprobs);
  if (adjuster_ != nullptr) {
    for (auto it = request.emitted.begin(); it != known; ++it) adjuster_->add_emitted(*it);
  }
  if (request.thinking_limit != nullptr) {
    thinking_ = std::make_unique<ThinkingBudget>(tokenizer, std::move(request.thinking_limit));
    thinking_->restart({request.emitted.begin(), known});
  }
  if (request.grammar.compiled != nullptr && !prompt_only_) {
    grammar_ =
        std::make_unique<GrammarState>(request.grammar, stop_token_ids_, ignore_eos_,
                                       std::span<const TokenId>(request.emitted).first(first_position_));
  }
  if (!request.banned_strings.empty() && !prompt_only_) {
    TROUPE_CHECK(!has_state(), "tokens that moved mirostat's state on cannot be taken back");
    provisional_ =
        std::make_unique<ProvisionalAnswer>(tokenizer, request.banned_strings, request.prompt,
                                            std::span<const TokenId>(request.emitted).first(first_position_));
  }
  // Every token is drawn where draws are shown, taken back, hang on each other, or come of two prompts.
  const bool draws_all = logprobs_ || provisional_ != nullptr || has_state() || request.guidance.has_value();
  if (grammar_ != nullptr && thinking_ == nullptr && !draws_all) {
    forced_run_ =
        std::make_unique<ForcedRun>(tokenizer, &request.grammar.compiled->vocabulary(),
                                    std::span<const TokenId>(request.emitted).first(first_position_));
  }
  if (!logprobs_ || !request.prompt_logprobs) return;
  scored_prompt_ = request.prompt;
  prompt_scores_.reserve(scored_prompt_.size());
  prompt_scores_.emplace_back().token = scored_prompt_.front();  // nothing comes before it
}

SampleRow Sequence::draw_at(uint64_t position, int32_t last_drawn) {
  const bool is_decided = ends_thought() || (is_known(position) && !has_state()) ||
                          (forced_run_ != nullptr && forced(position).has_value());
  if (prompt_only_ || is_decided) return {.draw = {.temperature = 0}};
  SampleRow row{.draw = draw_params(sampling_, position)};
  if (adjuster_ != nullptr) {
    row.penalties = adjuster_->penalties();
    row.edits = adjuster_->edits(position);
    row.last_drawn = last_drawn;
  }
  if (position == redraw_.position) row.edits = redraw_.edits;
  if (grammar_ != nullptr) row.mask = grammar_->mask();
  if (sampling_.chain) row.chain = &*sampling_.chain;
  if (has_state()) row.mirostat_mu = &mirostat_mu_;
  if (is_known(position)) row.known = known_[position - first_position_];
  return row;
}

std::optional<TokenId> Sequence::forced(uint64_t position) {
  return forced_run_->next([this] { return grammar_->forced_text(); },
                           [this, position](TokenId token) { return is_banned(token, position); });
}

bool Sequence::is_banned(TokenId token, uint64_t position) {
  if (adjuster_ == nullptr) return false;
  constexpr float kBan = -100;  // OpenAI's
  const std::span<const LogitEdit> edits = adjuster_->edits(position);
  return std::any_of(edits.begin(), edits.end(),
                     [token](const LogitEdit& e) { return e.token == token && e.bias <= kBan; });
}

TokenId Sequence::accept(TokenId drawn, uint64_t position) {
  TokenId token = is_known(position) ? known_[position - first_position_] : drawn;
  if (forced_run_ != nullptr) {
    if (!is_known(position)) token = forced(position).value_or(token);
    forced_run_->push(token);
  }
  if (thinking_ != nullptr) {
    if (!is_known(position)) token = thinking_->forced().value_or(token);
    thinking_->push(token);
  }
  if (adjuster_ != nullptr) adjuster_->add_emitted(token);
  if (grammar_ != nullptr) grammar_->accept(token);
  return token;
}

void Sequence::settle(TokenEvent event, uint64_t position, StepToken& result,
                      std::vector<TokenEvent>& released) {
  const RequestId id = event.id;
  settle_token(std::move(event), position, result, released);
  const bool goes_on = !result.finished && result.kept_count < 0;
  if (grammar_ == nullptr || !goes_on || !grammar_->is_finished()) return;
  release_all(released);
  TokenEvent& end = released.emplace_back();
  end.id = id;
  end.cached_count = cached_count;
  end.finish = FinishReason::kStop;
  result.finished = true;
}

void Sequence::settle_token(TokenEvent event, uint64_t position, StepToken& result,
                            std::vector<TokenEvent>& released) {
  if (provisional_ == nullptr) {
    released.push_back(std::move(event));
  } else if (result.finished) {
    provisional_->release_all(released);
    released.push_back(std::move(event));
  } else if (is_known(position)) {
    provisional_->append_sent(std::move(event), result, released);
  } else if (thinking_ != nullptr && thinking_->last_was_forced()) {
    provisional_->append_forced(std::move(event), result, released);
  } else {
    provisional_->append(std::move(event), result, released);
    if (result.kept_count >= 0) rewind();
  }
}

void Sequence::release_all(std::vector<TokenEvent>& released) {
  if (provisional_ != nullptr) provisional_->release_all(released);
}

void Sequence::rewind() {
  redraw_.position = provisional_->emitted().size();
  if (grammar_ != nullptr) grammar_->rewind_to(provisional_->emitted().size());
  if (thinking_ != nullptr) thinking_->restart(provisional_->emitted());
  adjuster_ = LogitAdjuster::make(sampling_, provisional_->prompt());
  redraw_.edits.clear();
  if (adjuster_ != nullptr) {
    for (const TokenId token : provisional_->emitted()) adjuster_->add_emitted(token);
    const std::span<const LogitEdit> edits = adjuster_->edits(redraw_.position);
    redraw_.edits.assign(edits.begin(), edits.end());
  }
  constexpr float kBan = -std::numeric_limits<float>::infinity();
  for (const TokenId token : provisional_->banned()) {
    const auto edit = std::find_if(redraw_.edits.begin(), redraw_.edits.end(),
                                   [token](const LogitEdit& e) { return e.token == token; });
    if (edit == redraw_.edits.end()) {
      redraw_.edits.push_back({token, /*emitted_count=*/-1, kBan});
    } else {
      edit->bias = kBan;
    }
  }
}

TokenScore Sequence::score(std::span<const float> logits, TokenId token) const {
  return LogSoftmax(logits).score(token, static_cast<size_t>(*logprobs_));
}

Sequence::End Sequence::end_at(TokenId token, const std::vector<int32_t>& eos_token_ids) const {
  if (!ignore_eos_ && contains(eos_token_ids, token)) return End::kModel;
  return contains(stop_token_ids_, token) ? End::kRequest : End::kNone;
}

std::vector<TokenScore> Sequence::take_prompt_scores() {
  scored_prompt_.clear();
  return std::exchange(prompt_scores_, {});
}

void Sequence::add_prompt_score(std::span<const float> logits) {
  const TokenId token = scored_prompt_[prompt_scores_.size()];
  prompt_scores_.push_back(LogSoftmax(logits).score(token, static_cast<size_t>(*logprobs_)));
}

}  // namespace troupe
