#pragma once

// Adjusts a request's logits by its parameters and its history before a token is drawn (kernels/sampling.h).

#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker/model/sampler.h"

namespace troupe {

// The history of one request. It counts emitted tokens, not computed ones: a request that is preempted and
// recomputed keeps its counts.
class LogitAdjuster {
 public:
  // Null if `params` leaves the logits unchanged.
  static std::unique_ptr<LogitAdjuster> make(const SamplingParams& params, std::span<const TokenId> prompt);

  const LogitPenalties& penalties() const { return penalties_; }
  // Valid until the next add_emitted().
  std::span<const LogitEdit> edits() const { return edits_; }
  void add_emitted(TokenId token);

 private:
  LogitAdjuster(const SamplingParams& params, std::span<const TokenId> prompt);
  LogitEdit& edit_of(TokenId token);

  const LogitPenalties penalties_;
  std::vector<LogitEdit> edits_;
  absl::flat_hash_map<TokenId, size_t> places_;  // index in edits_
};

}  // namespace troupe
