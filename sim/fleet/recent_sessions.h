#pragma once

// Lengths of conversations: tokens of each one's last prompt and its answer, as a gateway sees them in the
// messages. Remembers the most recent ones, at least half of its capacity, in two halves of which the older
// is dropped whole. So there are no links by age, and a look-up is one.

#include <absl/container/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe::sim {

class RecentSessions {
 public:
  explicit RecentSessions(size_t sessions_max) : half_max_(sessions_max / 2 > 0 ? sessions_max / 2 : 1) {}

  // 0: unknown.
  int32_t tokens(uint64_t session) const {
    if (const auto found = young_.find(session); found != young_.end()) return found->second;
    const auto found = old_.find(session);
    return found == old_.end() ? 0 : found->second;
  }
  void set(uint64_t session, int32_t tokens) {
    if (young_.size() >= half_max_ && !young_.contains(session)) {
      old_ = std::move(young_);
      young_.clear();
    }
    young_[session] = tokens;
  }
  // Prefetches the memory of a coming look-up.
  void prefetch(uint64_t session) const { young_.prefetch(session); }

 private:
  size_t half_max_;
  absl::flat_hash_map<uint64_t, int32_t> young_, old_;
};

}  // namespace troupe::sim
