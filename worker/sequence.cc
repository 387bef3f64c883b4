#include "worker/sequence.h"

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
  const auto known = request.emitted.end() - request.untold_logprobs;
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

// What is told is of the logits as the model made them, so the adjusted ones are a copy then.
TokenId Sequence::draw(std::span<float> logits, uint64_t position, std::vector<float>& scratch,
                       std::unique_ptr<TokenScore>& score) {
  std::span<float> adjusted = logits;
  if (adjuster_ != nullptr && logprobs_) {
    scratch.assign(logits.begin(), logits.end());
    adjusted = scratch;
  }
  if (adjuster_ != nullptr) adjuster_->apply(adjusted);
  const size_t drawn_count = position - first_position_;
  const TokenId token =
      drawn_count < known_.size() ? known_[drawn_count] : sample_token(adjusted, sampling_, position);
  if (adjuster_ != nullptr) adjuster_->add_emitted(token);
  if (logprobs_) {
    score = std::make_unique<TokenScore>(LogSoftmax(logits).score(token, static_cast<size_t>(*logprobs_)));
  }
  return token;
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
