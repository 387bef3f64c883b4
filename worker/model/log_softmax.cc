// The weights are single precision (an exponential costs half of a double's, and its error of 1e-7 is far
// below that of bfloat16 weights), their sum double: 150,000 float additions would lose the small ones.

#include "worker/model/log_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float clean(float logit) {
  return std::isnan(logit) ? kMinusInfinity : logit;
}

}  // namespace

LogSoftmax::LogSoftmax(std::span<const float> logits) : logits_(logits), max_logit_(kMinusInfinity) {
  for (const float logit : logits) {
    if (logit > max_logit_) max_logit_ = logit;  // false for NaN
  }
  double total = 0;
  for (const float logit : logits) {
    // The comparison keeps inf - inf out.
    total += logit == max_logit_ ? 1.0 : double{std::exp(clean(logit) - max_logit_)};
  }
  log_total_ = std::log(total);
}

float LogSoftmax::of(TokenId token) const {
  const float logit = clean(logits_[static_cast<size_t>(token)]);
  if (logit == kMinusInfinity) return kMinusInfinity;
  const double difference = logit == max_logit_ ? 0.0 : double{logit} - double{max_logit_};
  return static_cast<float>(difference - log_total_);
}

// `count` is small (20): few logits reach the insertion into this sorted list.
std::vector<RankedToken> LogSoftmax::best(size_t count) const {
  std::vector<TokenId> ids;
  ids.reserve(count + 1);
  const auto logit_of = [this](TokenId id) { return clean(logits_[static_cast<size_t>(id)]); };
  for (size_t i = 0; i < logits_.size() && count > 0; ++i) {
    const auto id = static_cast<TokenId>(i);
    const float logit = logit_of(id);
    if (ids.size() == count && logit <= logit_of(ids.back())) continue;
    const auto worse = [&](TokenId other) { return logit_of(other) < logit; };
    ids.insert(std::find_if(ids.begin(), ids.end(), worse), id);
    if (ids.size() > count) ids.pop_back();
  }
  std::vector<RankedToken> best;
  best.reserve(ids.size());
  for (const TokenId id : ids) best.push_back({id, of(id)});
  return best;
}

TokenScore LogSoftmax::score(TokenId token, size_t top_count) const {
  return {token, of(token), best(top_count)};
}

float log_probability(std::span<const float> logits, TokenId token) {
  return LogSoftmax(logits).of(token);
}

}  // namespace troupe
