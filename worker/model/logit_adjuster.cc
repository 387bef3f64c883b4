#include "worker/model/logit_adjuster.h"

namespace troupe {

std::unique_ptr<LogitAdjuster> LogitAdjuster::make(const SamplingParams& params,
                                                   std::span<const TokenId> prompt) {
  const bool penalizes = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                         params.frequency_penalty != 0.0f;
  if (!penalizes && params.logit_bias.empty()) return nullptr;
  return std::unique_ptr<LogitAdjuster>(new LogitAdjuster(params, prompt));
}

LogitAdjuster::LogitAdjuster(const SamplingParams& params, std::span<const TokenId> prompt)
    : repetition_penalty_(params.repetition_penalty),
      presence_penalty_(params.presence_penalty),
      frequency_penalty_(params.frequency_penalty),
      logit_bias_(params.logit_bias) {
  if (repetition_penalty_ == 1.0f) return;  // nothing else asks for the prompt
  for (const TokenId token : prompt) emitted_counts_.emplace(token, 0);
}

void LogitAdjuster::apply(std::span<float> logits) const {
  for (const auto& [token, bias] : logit_bias_) logits[static_cast<size_t>(token)] += bias;
  for (const auto& [token, count] : emitted_counts_) {
    float& logit = logits[static_cast<size_t>(token)];
    if (repetition_penalty_ != 1.0f) {
      logit = logit > 0 ? logit / repetition_penalty_ : logit * repetition_penalty_;
    }
    if (count == 0) continue;
    logit -= frequency_penalty_ * static_cast<float>(count);
    logit -= presence_penalty_;
  }
}

void LogitAdjuster::add_emitted(TokenId token) {
  ++emitted_counts_[token];
}

}  // namespace troupe
