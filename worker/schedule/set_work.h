#pragma once

// Counts the work that each set has made since the start; the planner of the whole fleet adds it up. Counters
// only rise; a set that was forgotten begins at zero again. Pure; not thread-safe; bounded.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/block_hash.h"

namespace troupe {

class SetWork {
 public:
  struct Total {
    Hash128 set;
    int64_t work_tokens_total = 0;  // computed, of prompts and answers
    int32_t prefix_count = 0;       // tokens of its prefix, as last seen
  };

  // At most `sets_max` sets are kept apart; beyond that the one without work for longest is forgotten.
  explicit SetWork(int32_t sets_max);

  // `tokens` were computed for a request of `set`. A zero set is not counted.
  void add(Hash128 set, int32_t prefix_count, int64_t tokens);
  const std::vector<Total>& totals() const { return totals_; }

 private:
  size_t place_for(Hash128 set);

  size_t sets_max_;
  std::vector<Total> totals_;
  std::vector<uint64_t> used_at_;  // beside them
  absl::flat_hash_map<Hash128, size_t> places_;
  uint64_t add_count_ = 0;
};

}  // namespace troupe
