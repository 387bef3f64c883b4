#pragma once

// Adjusts a request's logits by its parameters and its history before a token is drawn (kernels/sampling.h).

#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker/model/sampler.h"

namespace troupe {

// The history of one request. It counts emitted tokens, not computed ones: a request that is preempted and
// recomputed keeps its counts. All of it follows from the parameters and the ids, so another one that is told
// the same ids makes the same edits.
class LogitAdjuster {
 public:
  // Null if `params` leaves the logits unchanged.
  static std::unique_ptr<LogitAdjuster> make(const SamplingParams& params, std::span<const TokenId> prompt);

  const LogitPenalties& penalties() const { return penalties_; }
  // The edits before the draw of the answer's token at `position`. Valid until the next call of a function
  // that is not const.
  std::span<const LogitEdit> edits(uint64_t position);
  // Whether the edits hang on which token is the last, so that it must be added before they are asked for.
  bool needs_last() const { return needs_last_; }
  void add_emitted(TokenId token);

 private:
  LogitAdjuster(const SamplingParams& params, std::span<const TokenId> prompt);
  size_t place_of(TokenId token);
  float repetition_at(int32_t place) const;
  void ban_ends_of_sequences();
  // Adds to the bias of a token in row_edits_.
  void add_bias(TokenId token, float bias);

  const LogitPenalties penalties_;
  const HistorySamplers samplers_;
  const bool has_window_;
  bool needs_last_ = false;
  std::vector<LogitEdit> edits_;
  std::vector<int32_t> seen_at_;                 // of each edit's token the last place; below zero: nowhere
  absl::flat_hash_map<TokenId, size_t> places_;  // index in edits_
  int32_t seen_count_ = 0;                       // tokens of the history
  std::vector<TokenId> history_;                 // kept only if it is read
  DryMatcher dry_;
  std::vector<LogitEdit> row_edits_;                 // edits_ with what holds for one position
  absl::flat_hash_map<TokenId, size_t> row_places_;  // index in row_edits_ of those not in edits_
};

}  // namespace troupe
