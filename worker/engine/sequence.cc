#include "worker/engine/sequence.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

namespace {

bool contains(const std::vector<int32_t>& ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

}  // namespace

Sequence::Sequence(EngineRequest& request, const Tokenizer* tokenizer)
    : provisional_(request.banned_strings.empty() || request.prompt_only
                       ? nullptr
                       : std::make_unique<ProvisionalAnswer>(tokenizer, request)),
      sampling_(std::move(request.sampling)),
      adjuster_(LogitAdjuster::make(sampling_, request.prompt)),
      stop_token_ids_(std::move(request.stop_token_ids)),
      ignore_eos_(request.ignore_eos),
      prompt_only_(request.prompt_only),
      logprobs_(request.logprobs) {
  const auto known = request.emitted.end() - request.unsent_logprobs;
  known_.assign(known, request.emitted.end());
  first_position_ = request.emitted.size() - known_.size();
  if (adjuster_ != nullptr) {
    for (auto it = request.emitted.begin(); it != known; ++it) adjuster_->add_emitted(*it);
  }
  if (!logprobs_ || !request.prompt_logprobs) return;
  scored_prompt_ = request.prompt;
  prompt_scores_.reserve(scored_prompt_.size());
  prompt_scores_.emplace_back().token = scored_prompt_.front();  // nothing comes before it
}

SampleRow Sequence::draw_at(uint64_t position, int32_t last_drawn) const {
  if (prompt_only_ || is_known(position)) return {.draw = {.temperature = 0}};
  SampleRow row{.draw = draw_params(sampling_, position)};
  if (adjuster_ != nullptr) {
    row.penalties = adjuster_->penalties();
    row.edits = adjuster_->edits();
    row.last_drawn = last_drawn;
  }
  if (position == redraw_position_) row.edits = redraw_edits_;
  return row;
}

TokenId Sequence::accept(TokenId drawn, uint64_t position) {
  const TokenId token = is_known(position) ? known_[position - first_position_] : drawn;
  if (adjuster_ != nullptr) adjuster_->add_emitted(token);
  return token;
}

void Sequence::settle(TokenEvent event, uint64_t position, StepToken& result,
                      std::vector<TokenEvent>& released) {
  if (provisional_ == nullptr) {
    released.push_back(std::move(event));
  } else if (result.finished) {
    provisional_->release_all(released);
    released.push_back(std::move(event));
  } else if (is_known(position)) {
    provisional_->append_sent(std::move(event), result, released);
  } else {
    provisional_->append(std::move(event), result, released);
    if (result.kept_count >= 0) restart_adjuster();
  }
}

void Sequence::release_all(std::vector<TokenEvent>& released) {
  if (provisional_ != nullptr) provisional_->release_all(released);
}

// The history is that of the tokens which are left.
void Sequence::restart_adjuster() {
  adjuster_ = LogitAdjuster::make(sampling_, provisional_->prompt());
  redraw_edits_.clear();
  if (adjuster_ != nullptr) {
    for (const TokenId token : provisional_->emitted()) adjuster_->add_emitted(token);
    redraw_edits_.assign(adjuster_->edits().begin(), adjuster_->edits().end());
  }
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (const TokenId token : provisional_->banned()) {
    const auto edit = std::find_if(redraw_edits_.begin(), redraw_edits_.end(),
                                   [token](const LogitEdit& e) { return e.token == token; });
    if (edit == redraw_edits_.end()) {
      redraw_edits_.push_back({token, /*emitted_count=*/-1, kNever});
    } else {
      edit->bias = kNever;
    }
  }
  redraw_position_ = provisional_->emitted().size();
}

TokenScore Sequence::score(std::span<const float> logits, TokenId token) const {
  return LogSoftmax(logits).score(token, static_cast<size_t>(*logprobs_));
}

bool Sequence::stops(TokenId token, const std::vector<int32_t>& eos_token_ids) const {
  return contains(stop_token_ids_, token) || (!ignore_eos_ && contains(eos_token_ids, token));
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
