#pragma once

// How long conversations are: tokens of each one's last prompt and its answer, as a gateway sees them in the
// messages. Remembers the ones that spoke last: half as many as it may hold at least, in two halves of which
// the older is dropped whole. So nothing is linked by age, and a look-up is one.

#include <absl/container/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe::sim {

class RecentSessions {
 public:
  explicit RecentSessions(size_t sessions_max) : half_max_(sessions_max / 2 > 0 ? sessions_max / 2 : 1) {}

  // 0: not known.
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
  // Fetches the memory that a look-up will need soon.
  void prefetch(uint64_t session) const { young_.prefetch(session); }

 private:
  size_t half_max_;
  absl::flat_hash_map<uint64_t, int32_t> young_, old_;
};

}  // namespace troupe::sim
