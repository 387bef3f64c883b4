// The router's run-time changes: an operator's settings, and slots reused by other nodes.

#include <algorithm>

#include "gateway/route/router.h"

namespace troupe::route {

void Router::change(const AffinityOptions& affinity, const PlannerOptions& planner) {
  AffinityOptions& now = options_.affinity;
  now.pending_weight = affinity.pending_weight;
  now.load_tokens = affinity.load_tokens;
  now.hot_factor = affinity.hot_factor;
  now.noise_tokens = affinity.noise_tokens;
  options_.planner.tick = planner.tick;
  options_.planner.kv_share = planner.kv_share;
  options_.planner.max_sets_per_node = planner.max_sets_per_node;
  options_.planner.max_nodes_per_set = planner.max_nodes_per_set;
  planner_.change(options_.planner);
  known_.loads.change(now);
  if (!policy_info(options_.policy).follows_table) return;  // the baselines keep state of their own
  policy_ = make_policy(options_.policy, now);
  policy_->adopt(*known_.view);
}

// Forgets the last node of each reused slot, so that nothing of it counts for the new one. The common table
// stays as it is for the other gateways: it is kept by names, which only the outgoing view can resolve.
bool Router::forget_replaced(const ClusterView& next) {
  std::vector<NodeIndex> replaced;
  const size_t both = std::min(next.size(), known_.view->size());
  for (NodeIndex n = 0; n < both; ++n) {
    if (next.node(n).hash != known_.view->node(n).hash) replaced.push_back(n);
  }
  if (replaced.empty()) return false;
  table_message();
  planner_.vacate(replaced);
  known_.table = planner_.table();
  const auto is_replaced = [&](const auto& of) {
    return std::binary_search(replaced.begin(), replaced.end(), of.node);
  };
  std::erase_if(outbox_, is_replaced);
  std::erase_if(untold_, is_replaced);
  for (const NodeIndex n : replaced) {
    known_.handover.come_back(n);
    forget_node(n);
    policy_->replace_node(n);
    known_.shadow.set_budget(n, options_.memory.node_kv_tokens_guess);
  }
  return true;
}

}  // namespace troupe::route
