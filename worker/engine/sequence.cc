#include "worker/engine/sequence.h"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

bool contains(const std::vector<int32_t>& ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

}  // namespace

Sequence::Sequence(EngineRequest& request)
    : sampling_(std::move(request.sampling)),
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
  return row;
}

TokenId Sequence::accept(TokenId drawn, uint64_t position) {
  const TokenId token = is_known(position) ? known_[position - first_position_] : drawn;
  if (adjuster_ != nullptr) adjuster_->add_emitted(token);
  return token;
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
