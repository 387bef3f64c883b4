#pragma once

// Which of several gateways plans the table, as each of them sees it from what it hears.
//
// One table needs one planner: copies that are kept and joins that are spread make a table hang on its past,
// so gateways that plan side by side differ for good once one of them missed a tick or saw a node die that
// the others did not. Instead, one plans and the others take its table over whole:
//
//   what counts   of two tables the greater version (epoch, planner). A planner goes on from the table that
//                 counts, in an epoch of its own above it. So a table that comes late, twice or in another
//                 order changes nothing, and gateways that hear each other come to the same one.
//   who plans     whoever made the table that counts, as long as it is heard; else the heard one with the
//                 smallest name. But nobody who has nothing to plan from, or who sees half of the nodes at
//                 most that another sees: a gateway cut off from its workers would plan them away.
//   settings      where gateways divide keys into strict sets of different numbers, the planner's number is
//   in
//                 the table and counts for all. Where some are strict and others are not, the one's table
//                 says nothing to the other: each kind has a planner of its own.
//
// Where gateways do not hear each other, each part of them has its own planner, and all find back to one
// table when they do: a planner too many costs epochs, never agreement.

#include <absl/container/flat_hash_map.h>

#include <cstdint>

#include "common/core/block_hash.h"
#include "common/core/time.h"
#include "gateway/route/fleet/gateway_shard.h"
#include "gateway/route/placement/table.h"

namespace troupe::route {

// What a gateway says of itself with every message and every answer, once a second at least.
struct GatewayNews {
  Hash128 name;              // of this life of it
  TableVersion table;        // that it goes by
  uint32_t nodes = 0;        // that it can plan for; 0: it has no loads to plan from
  uint32_t strict_sets = 0;  // that it plans with; 0: every set is its own
};

// Not thread-safe.
class Gateways {
 public:
  // A gateway that is silent for this long is gone: three of the seconds in which it would have spoken.
  static constexpr Duration kSilence = std::chrono::seconds(3);

  // News of oneself are not heeded.
  void heard(const GatewayNews& own, const GatewayNews& news, TimePoint now);
  bool plans(const GatewayNews& own, TimePoint now) const;
  // Where gateways agree on a planner by other means: it may be this one, unless somebody sees twice as many
  // nodes or goes by a later table.
  bool may_plan(const GatewayNews& own, TimePoint now) const;
  // By its last news.
  bool lacks(const Hash128& gateway, const GatewayNews& own) const;
  // May one go by the other's table?
  static bool same_kind(const GatewayNews& a, const GatewayNews& b) {
    return (a.strict_sets == 0) == (b.strict_sets == 0);
  }
  struct Other {
    GatewayNews news;
    TimePoint heard_at{};
  };
  // Among those that share the fleet now, this one included: those that are silent for kSilence do not.
  GatewayShard place(const Hash128& own, TimePoint now) const;
  // Who was heard lately.
  const absl::flat_hash_map<Hash128, Other>& others() const { return others_; }

 private:
  absl::flat_hash_map<Hash128, Other> others_;
};

}  // namespace troupe::route
