#pragma once

// Log-probabilities of one row of logits, as reported to clients and scored: of the model's own logits,
// before bias, penalties and temperature. All log-probabilities are computed here, so they agree to the bit.

#include <span>
#include <vector>

#include "worker/schedule/request.h"

namespace troupe {

struct RankedToken {
  TokenId id = 0;
  float logprob = 0;
};

// A token with its log-probability and those of the most probable ones.
struct TokenScore {
  TokenId token = 0;
  float logprob = 0;
  std::vector<RankedToken> top = {};
};

// `logits` must outlive this and not be empty. NaNs count as -inf.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);

  float of(TokenId token) const;
  // log of the sum of exp(logit).
  double log_total() const { return double{max_logit_} + log_total_; }
  // The `count` (at most V) most probable tokens, best first, the lowest id among equals.
  std::vector<RankedToken> best(size_t count) const;
  TokenScore score(TokenId token, size_t top_count) const;

 private:
  std::span<const float> logits_;
  float max_logit_;
  double log_total_;  // of the weights exp(logit - max_logit_)
};

// log softmax(logits)[token]
float log_probability(std::span<const float> logits, TokenId token);

}  // namespace troupe
