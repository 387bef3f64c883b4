#include "gateway/route/fleet/view.h"

#include <algorithm>
#include <bit>

#include "common/core/status.h"

namespace troupe::route {

std::string_view node_state_name(NodeState state) {
  switch (state) {
    case NodeState::kUnknown:
      return "unknown";
    case NodeState::kAlive:
      return "ready";
    case NodeState::kSuspect:
      return "suspect";
    case NodeState::kDead:
      return "dead";
    case NodeState::kDraining:
      return "draining";
  }
  return "unknown";
}

ClusterView::ClusterView(uint64_t epoch, std::vector<NodeView> nodes)
    : epoch_(epoch), nodes_(std::move(nodes)) {
  for (NodeIndex i = 0; i < nodes_.size(); ++i) {
    NodeView& node = nodes_[i];
    node.hash = hash_bytes(node.id);
    equal_weights_ &= node.weight == nodes_[0].weight;
    const bool up = routable(i);
    routable_count_ += up ? 1 : 0;
    for (const std::string& model : node.models) {
      Serving& serving = by_model_[model];
      if (!up || (!serving.nodes.empty() && serving.nodes.back() == i)) continue;
      serving.nodes.push_back(i);
      const int64_t context = node.context_of(model);
      if (context > 0 && (serving.shortest_context == 0 || context < serving.shortest_context))
        serving.shortest_context = context;
      if (!excluded_from_homes(node)) serving.homes.push_back(i);
      Hash128 weighed = node.hash;
      weighed.lo ^= excluded_from_homes(node) ? 1 : 0;
      weighed.hi ^= std::bit_cast<uint64_t>(node.weight);
      Hash128 so_far;
      so_far.lo = serving.membership;
      serving.membership = mix_hash(so_far, weighed);
    }
  }
  for (const auto& [model, serving] : by_model_) {
    Hash128 group;
    group.lo = serving.membership;
    memberships_ += mix_hash(hash_bytes(model), group);  // a sum: the map has no order
  }
}

bool ClusterView::routable(NodeIndex index) const {
  if (index >= nodes_.size()) return false;
  return nodes_[index].state == NodeState::kAlive || nodes_[index].state == NodeState::kSuspect;
}

std::span<const NodeIndex> ClusterView::nodes_for(std::string_view model) const {
  const auto it = by_model_.find(to_absl(model));
  if (it == by_model_.end()) return {};
  return it->second.nodes;
}

std::span<const NodeIndex> ClusterView::homes_for(std::string_view model) const {
  const auto it = by_model_.find(to_absl(model));
  if (it == by_model_.end()) return {};
  return it->second.homes.empty() ? it->second.nodes : it->second.homes;
}

uint64_t ClusterView::membership(std::string_view model) const {
  const auto it = by_model_.find(to_absl(model));
  return it == by_model_.end() ? 0 : it->second.membership;
}

int64_t NodeView::context_of(std::string_view model) const {
  const auto at = static_cast<size_t>(std::find(models.begin(), models.end(), model) - models.begin());
  return at < contexts.size() ? contexts[at] : 0;
}

int64_t ClusterView::shortest_context(std::string_view model) const {
  const auto it = by_model_.find(to_absl(model));
  return it == by_model_.end() ? 0 : it->second.shortest_context;
}

bool ClusterView::knows_model(std::string_view model) const {
  return by_model_.contains(to_absl(model));
}

std::vector<std::string> ClusterView::models() const {
  std::vector<std::string> names;
  for (const auto& [name, serving] : by_model_) {
    if (!serving.nodes.empty()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace troupe::route
