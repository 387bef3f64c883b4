#pragma once

// Placements of requests on nodes, this gateway's and its peers': ClusterState::shadow, which stands for a
// node's own word where it reports nothing, or not yet.
//
// Not thread-safe; Router's part.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "common/core/time.h"
#include "gateway/route/placement/gossip.h"
#include "gateway/route/router_core.h"

namespace troupe::route {

class PlacementTracker {
 public:
  // REQUIRES: `core` outlives it.
  explicit PlacementTracker(RouterCore& core) : options_(core.options), core_(core), known_(core.known) {}

  // The node has computed it for a request of this gateway, or is about to: it is remembered. publish()
  // queues it for the peers.
  void placed(Placement placement, TimePoint now);
  void publish(const Placement& placement);
  // A request without a session, or of plain text, is remembered by its prompt's links.
  void place_chain(const PrefixKey& key, NodeIndex node);
  // Forgets what nodes have not confirmed in time.
  void advance(TimePoint now);
  FeedResult residency(NodeIndex node, const ResidencyEvent& event);
  // Nodes, in order, whose slots other nodes get.
  void remove_nodes(std::span<const NodeIndex> nodes);
  // The node has no residency feed in step, so what was placed there is all that is known.
  bool relies_on_shadow(NodeIndex node) const { return !known_.exact->feeds.in_step(node); }

  // Own placements since the last call, the oldest first; empty with one gateway, which has no peers.
  std::vector<Placement> take();
  void adopt(std::span<const Placement> placements);
  // For a gateway that has just begun and knows none: all known placements on nodes without a residency feed
  // in step; at most `max`, the most recently used of each node, in order of use.
  std::vector<Placement> all(size_t max) const;
  uint64_t dropped() const { return dropped_; }  // for a full outbox

 private:
  // Placed on nodes with a residency feed, and not yet reported by it; the oldest first.
  struct Unconfirmed {
    TimePoint until;
    Hash128 key;
    NodeIndex node;
  };
  void remember(const Placement& placement);
  void forget_oldest();

  const RouterOptions& options_;
  const RouterCore& core_;
  ClusterState& known_;
  std::deque<Unconfirmed> unconfirmed_;
  std::vector<Placement> outbox_;
  uint64_t dropped_ = 0;
};

}  // namespace troupe::route
