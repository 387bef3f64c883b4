#include "worker/model/logit_adjuster.h"

#include <algorithm>

namespace troupe {

std::unique_ptr<LogitAdjuster> LogitAdjuster::make(const SamplingParams& params,
                                                   std::span<const TokenId> prompt) {
  const bool penalizes = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                         params.frequency_penalty != 0.0f;
  if (!penalizes && params.logit_bias.empty()) return nullptr;
  return std::unique_ptr<LogitAdjuster>(new LogitAdjuster(params, prompt));
}

LogitAdjuster::LogitAdjuster(const SamplingParams& params, std::span<const TokenId> prompt)
    : penalties_{params.repetition_penalty, params.presence_penalty, params.frequency_penalty} {
  for (const auto& [token, bias] : params.logit_bias) edit_of(token).bias = bias;
  if (penalties_.repetition == 1.0f) return;  // only the repetition penalty needs the prompt
  for (const TokenId token : prompt) edit_of(token).emitted_count = 0;
}

LogitEdit& LogitAdjuster::edit_of(TokenId token) {
  const auto [place, is_new] = places_.emplace(token, edits_.size());
  if (is_new) edits_.push_back({token, /*emitted_count=*/-1, 0.0f});
  return edits_[place->second];
}

void LogitAdjuster::add_emitted(TokenId token) {
  LogitEdit& edit = edit_of(token);
  edit.emitted_count = std::max(edit.emitted_count, 0) + 1;
}

}  // namespace troupe
