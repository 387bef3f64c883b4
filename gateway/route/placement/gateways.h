#pragma once

// Election of the gateway that plans the table, as each gateway sees it from its peers' announcements.
//
// One table needs one planner: copies that are kept and joins that are spread make a table depend on its
// past, so gateways that plan side by side differ for good once one of them missed a tick or saw a node die
// that the others did not. Instead, one plans and the others take its table over whole:
//
// - versions: of two tables the greater version (epoch, planner) counts. A planner continues from the table
//   that counts, in an epoch of its own above it. So a table that comes late, twice or in another order
//   changes nothing, and gateways that reach each other come to the same one.
// - planner: the gateway that made the table that counts, unless silent; else the smallest name that is not
//   silent. A gateway without loads to plan from, or that sees at most half of the nodes that another sees,
//   is excluded: one cut off from its workers would plan them away.
// - settings: where gateways divide keys into strict sets of different numbers, the planner's number is in
//   the table and counts for all. Strict and other gateways ignore each other's tables: each kind has a
//   planner of its own.
//
// In a network partition each part has its own planner, and all return to one table afterwards: a planner too
// many costs epochs, never agreement.

#include <absl/container/flat_hash_map.h>

#include <cstdint>

#include "common/core/block_hash.h"
#include "common/core/time.h"
#include "gateway/route/fleet/gateway_shard.h"
#include "gateway/route/placement/table.h"

namespace troupe::route {

// A gateway's state, sent with every message and every answer, once a second at least.
struct GatewayAnnouncement {
  Hash128 name;              // of this life of the gateway
  TableVersion table;        // in force there
  uint32_t nodes = 0;        // known there; 0: it has no loads to plan from
  uint32_t strict_sets = 0;  // it plans with; 0: every set is its own
};

// Not thread-safe.
class Gateways {
 public:
  // A gateway silent for this long is gone: it missed three messages.
  static constexpr Duration kSilence = std::chrono::seconds(3);

  // Ignores an announcement of this gateway itself.
  void observe(const GatewayAnnouncement& own, const GatewayAnnouncement& announcement, TimePoint now);
  bool plans(const GatewayAnnouncement& own, TimePoint now) const;
  // For gateways that elect a planner by other means: this one qualifies, unless a peer sees twice as many
  // nodes or has a later table.
  bool may_plan(const GatewayAnnouncement& own, TimePoint now) const;
  // The gateway's table is older than ours, by its last announcement.
  bool has_stale_table(const Hash128& gateway, const GatewayAnnouncement& own) const;
  // True if each may use the other's table.
  static bool same_kind(const GatewayAnnouncement& a, const GatewayAnnouncement& b) {
    return (a.strict_sets == 0) == (b.strict_sets == 0);
  }
  struct Other {
    GatewayAnnouncement announcement;
    TimePoint received_at{};
  };
  // This gateway's place among those that share the fleet now; those silent for kSilence do not count.
  GatewayShard place(const Hash128& own, TimePoint now) const;
  // Peers whose announcements came lately.
  const absl::flat_hash_map<Hash128, Other>& others() const { return others_; }

 private:
  absl::flat_hash_map<Hash128, Other> others_;
};

}  // namespace troupe::route
