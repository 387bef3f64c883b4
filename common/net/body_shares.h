#pragma once

// Divides the memory of request bodies (limits.bodies_bytes) between clients. A body's bytes count as they
// come. Where they become too many, one of those that stall gives up its place, or one of an address that
// has more on its way than the newest one's; of these the largest of the address with most. So a client that
// fills the memory slowly, or from one place, loses it, and not the others; without such a one the newest is
// refused, as the others are nearer to their ends. Small bodies always pass: together they are bounded by the
// number of connections.
//
// Pure: time is an argument. Each body belongs to a connection, which holds its Share.

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/time.h"

namespace troupe {

inline constexpr uint64_t kSmallBodyBytes = 64u << 10;

class BodyShares {
 public:
  // A body that brings less than kSmallBodyBytes in this time stalls.
  static constexpr Duration kStallsAfter = std::chrono::seconds(1);

  struct Share {
    std::string address;     // the client's: share_of()
    uint64_t bytes = 0;      // that it holds
    bool on_its_way = true;  // false: it is whole, and being answered
    size_t place = 0;        // among all, while it holds bytes
    uint64_t mark = 0;       // bytes when it last went on
    TimePoint marked_at{};
  };

  // `share` holds `bytes` from now on; it may have held others before.
  void hold(Share& share, uint64_t bytes, TimePoint now);
  void release(Share& share);
  uint64_t bytes() const { return bytes_; }
  // The share that has to give up its body for the bytes to be at most `bytes_max`, if `newest` has just
  // grown; null: none has. May be `newest` itself.
  Share* too_much(Share& newest, uint64_t bytes_max, TimePoint now) const;

 private:
  std::vector<Share*> shares_;
  uint64_t bytes_ = 0;
};

}  // namespace troupe
