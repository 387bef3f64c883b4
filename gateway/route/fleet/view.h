#pragma once

// The cluster as routing sees it: an immutable snapshot, swapped whole when anything in it changes, so a
// reader never sees half of a change and never locks. What changes with every request (the load) is not in
// here: see load_tracker.h.

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/block_hash.h"

namespace troupe::route {

// A node's slot: stable over all views for as long as the node is in them. Once it is gone for good another
// one may have it; Router::update_cluster() then forgets all that it knew of the first.
using NodeIndex = uint32_t;
inline constexpr NodeIndex kNoNode = UINT32_MAX;

enum class NodeState : uint8_t {
  kUnknown,  // not probed yet
  kAlive,
  kSuspect,  // a failure was seen, not yet enough for dead: asked only after all others
  kDead,
  kDraining,  // says itself that it takes no new requests
};
std::string_view node_state_name(NodeState state);

struct NodeView {
  std::string id;  // shown in headers, logs and metrics: host:port
  std::string url;
  double weight = 1;  // share of sets it takes, relative to the others
  NodeState state = NodeState::kUnknown;
  bool failing = false;       // a suspect for what it answered: home to no set (health.h)
  bool leaving = false;       // its sets are on their way to others (handover.h): home to no set
  int64_t in_flight_max = 0;  // 0: no bound
  std::vector<std::string> models;
  std::vector<int64_t> contexts;  // of each model, in tokens; 0, or no entry: not known
  bool is_troupe_worker = false;  // Troupe's own, not another kind of server
  Hash128 hash;                   // of id; set by ClusterView

  int64_t context_of(std::string_view model) const;  // 0: not known
};

class ClusterView {
 public:
  ClusterView() = default;
  ClusterView(uint64_t epoch, std::vector<NodeView> nodes);

  uint64_t epoch() const { return epoch_; }
  std::span<const NodeView> nodes() const { return nodes_; }
  const NodeView& node(NodeIndex index) const { return nodes_[index]; }
  size_t size() const { return nodes_.size(); }

  // Alive or suspect: may be sent requests.
  bool routable(NodeIndex index) const;
  size_t routable_count() const { return routable_count_; }
  // The routable nodes that serve `model`, by ascending slot; empty when none does.
  std::span<const NodeIndex> nodes_for(std::string_view model) const;
  // The nodes among them that may be home to sets: one that is failing or leaving may not, unless all are.
  std::span<const NodeIndex> homes_for(std::string_view model) const;
  bool may_be_home(NodeIndex index) const { return routable(index) && !excluded_from_homes(nodes_[index]); }
  // Names that group and its weights: two views with the same membership place this model's sets alike.
  uint64_t membership(std::string_view model) const;
  // The same of all models together: two views with the same one have the same table.
  uint64_t memberships() const { return memberships_; }
  // All nodes weigh the same, so a weighted draw is a plain one.
  bool equal_weights() const { return equal_weights_; }
  // The shortest known context of a routable node that serves `model`; 0: none reports one.
  int64_t shortest_context(std::string_view model) const;
  // Does any node, routable or not, serve `model`? Distinguishes 503 (not now) from 404 (unknown).
  bool knows_model(std::string_view model) const;
  // Models with a routable node, sorted.
  std::vector<std::string> models() const;

 private:
  static bool excluded_from_homes(const NodeView& node) { return node.failing || node.leaving; }

  uint64_t epoch_ = 0;
  std::vector<NodeView> nodes_;
  size_t routable_count_ = 0;
  struct Serving {
    std::vector<NodeIndex> nodes;
    std::vector<NodeIndex> homes;
    uint64_t membership = 0;
    int64_t shortest_context = 0;
  };
  bool equal_weights_ = true;
  uint64_t memberships_ = 0;
  absl::flat_hash_map<std::string, Serving> by_model_;
};

}  // namespace troupe::route
