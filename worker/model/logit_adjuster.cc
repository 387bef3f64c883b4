#include "worker/model/logit_adjuster.h"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

constexpr float kBan = -std::numeric_limits<float>::infinity();

}  // namespace

std::unique_ptr<LogitAdjuster> LogitAdjuster::make(const SamplingParams& params,
                                                   std::span<const TokenId> prompt) {
  const HistorySamplers& history = params.history;
  const bool penalizes = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                         params.frequency_penalty != 0.0f || history.dry.multiplier > 0;
  const bool bans = !history.banned.empty() || !history.banned_sequences.empty() ||
                    (history.min_tokens > 0 && !history.banned_early.empty());
  if (!penalizes && !bans && params.logit_bias.empty()) return nullptr;
  return std::unique_ptr<LogitAdjuster>(new LogitAdjuster(params, prompt));
}

LogitAdjuster::LogitAdjuster(const SamplingParams& params, std::span<const TokenId> prompt)
    : penalties_{params.repetition_penalty, params.presence_penalty, params.frequency_penalty},
      samplers_(params.history),
      has_window_(penalties_.repetition != 1.0f && samplers_.has_window()) {
  const bool reads_ids = samplers_.dry.multiplier > 0 || !samplers_.banned_sequences.empty();
  const bool is_late = params.chain.has_value() && params.chain->has_late_penalties();
  needs_last_ = reads_ids || has_window_ || is_late;
  if (reads_ids) history_.assign(prompt.begin(), prompt.end());
  for (const auto& [token, bias] : params.logit_bias) edits_[place_of(token)].bias = bias;
  for (const TokenId token : samplers_.banned) edits_[place_of(token)].bias = kBan;
  if (penalties_.repetition == 1.0f) return;  // only the repetition penalty needs the prompt
  for (const TokenId token : prompt) {
    const size_t place = place_of(token);
    edits_[place].emitted_count = 0;
    seen_at_[place] = seen_count_++;
  }
}

size_t LogitAdjuster::place_of(TokenId token) {
  const auto [place, is_new] = places_.emplace(token, edits_.size());
  if (is_new) {
    edits_.push_back({token, /*emitted_count=*/-1, 0.0f});
    seen_at_.push_back(-1);
  }
  return place->second;
}

void LogitAdjuster::add_emitted(TokenId token) {
  const size_t place = place_of(token);
  edits_[place].emitted_count = std::max(edits_[place].emitted_count, 0) + 1;
  seen_at_[place] = seen_count_++;
  if (samplers_.dry.multiplier > 0 || !samplers_.banned_sequences.empty()) history_.push_back(token);
}

// The penalty of a token whose last place is this; 1: none.
float LogitAdjuster::repetition_at(int32_t place) const {
  const float full = penalties_.repetition;
  const int32_t distance = seen_count_ - 1 - place;
  const int32_t range = samplers_.repetition_range;
  const int32_t window = range > 0 ? std::min(range, seen_count_) : seen_count_;
  const float reduced = full > 1.0f ? 1.0f + (full - 1.0f) * samplers_.repetition_slope : full;
  if (distance < window) return 2 * (int64_t{window} - 1 - distance) >= window ? full : reduced;
  if (distance - window >= samplers_.repetition_decay) return 1.0f;
  const float share = static_cast<float>(distance - window) / static_cast<float>(samplers_.repetition_decay);
  return reduced + (1.0f - reduced) * share;
}

std::span<const LogitEdit> LogitAdjuster::edits(uint64_t position) {
  const bool is_early = position < static_cast<uint64_t>(samplers_.min_tokens);
  if (!is_early && !has_window_ && history_.empty()) return edits_;
  row_edits_.assign(edits_.begin(), edits_.end());
  row_places_.clear();
  if (has_window_) {
    for (size_t i = 0; i < row_edits_.size(); ++i) {
      if (seen_at_[i] >= 0) row_edits_[i].repetition = repetition_at(seen_at_[i]);
    }
  }
  if (is_early) {
    for (const TokenId token : samplers_.banned_early) add_bias(token, kBan);
  }
  if (samplers_.dry.multiplier > 0) {
    for (const DryPenalty& penalty : dry_.find(samplers_.dry, history_)) {
      add_bias(penalty.token, -penalty.amount);
    }
  }
  ban_ends_of_sequences();
  return row_edits_;
}

void LogitAdjuster::ban_ends_of_sequences() {
  for (const std::vector<TokenId>& sequence : samplers_.banned_sequences) {
    const size_t before = sequence.size() - 1;
    if (before > history_.size()) continue;
    if (std::equal(sequence.begin(), sequence.end() - 1,
                   history_.end() - static_cast<std::ptrdiff_t>(before)))
      add_bias(sequence.back(), kBan);
  }
}

void LogitAdjuster::add_bias(TokenId token, float bias) {
  if (const auto own = places_.find(token); own != places_.end()) {
    row_edits_[own->second].bias += bias;
    return;
  }
  const auto [place, is_new] = row_places_.emplace(token, row_edits_.size());
  if (is_new) row_edits_.push_back({token, /*emitted_count=*/-1, 0.0f});
  row_edits_[place->second].bias += bias;
}

}  // namespace troupe
