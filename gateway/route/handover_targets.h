#pragma once

// Sets and conversations that move when a node leaves or begins empty, and their targets. The order of the
// moves is Handover's (placement/handover.h).
//
// Not thread-safe; Router's part.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/core/time.h"
#include "gateway/route/placement_tracker.h"
#include "gateway/route/router_core.h"

namespace troupe::route {

// A conversation as reported by a worker that leaves.
struct MovedConversation {
  Hash128 session, set;
  int64_t tokens = 0;      // from its first token on
  int64_t set_tokens = 0;  // of those, the set's prefix
};

class HandoverTargets {
 public:
  // REQUIRES: both outlive it.
  HandoverTargets(RouterCore& core, PlacementTracker& placements)
      : options_(core.options), known_(core.known), placements_(placements) {}

  // Sets that the node holds or is home to and that still have a noticeable share of the work, the hottest
  // first.
  std::vector<Hash128> sets_of(NodeIndex node) const;
  // The sets among `sets` of `model` that the node should hold and lacks: it is their home; or, where the
  // table does not decide alone (modes other than plan and strict), it would be by rendezvous, they are hot,
  // or many nodes have them. The hottest first, within half the node's KV. REQUIRES: the node is in the view.
  std::vector<Hash128> sets_for(NodeIndex node, std::string_view model, std::span<const Hash128> sets) const;
  // The node that computes a set's prefix before its traffic leaves `from`; kNoNode: enough others have it,
  // or no node is left. As many nodes get it as had it, where one more would come to be asked for it.
  NodeIndex next_home(const Hash128& set, std::string_view model, NodeIndex from) const;
  // The node has computed that many tokens of the set's prefix without a request.
  void computed(const Hash128& set, NodeIndex node, int64_t tokens, TimePoint now);
  // The node where the conversation continues: one that has its set, or is to have it; spread evenly.
  // kNoNode: it has continued elsewhere already, or no node is left.
  NodeIndex next_home(const MovedConversation& conversation, std::string_view model, NodeIndex from) const;
  void computed(const MovedConversation& conversation, NodeIndex node, TimePoint now);

 private:
  bool table_decides() const {
    return options_.affinity.mode == Mode::kPlan || options_.affinity.mode == Mode::kStrict;
  }
  bool takes_over(NodeIndex node, std::span<const NodeIndex> homes, NodeIndex from) const;
  bool spreads(const Hash128& set, size_t holders, size_t nodes) const;
  std::vector<NodeIndex> others_with(const Hash128& set, std::string_view model, NodeIndex from) const;

  const RouterOptions& options_;
  ClusterState& known_;
  PlacementTracker& placements_;
};

}  // namespace troupe::route
