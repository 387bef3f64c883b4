// The router's run-time changes: an operator's settings, and slots reused by other nodes.

#include <algorithm>

#include "gateway/route/router.h"

namespace troupe::route {

void Router::change(const AffinityOptions& affinity, const PlannerOptions& planner) {
  AffinityOptions& now = options_.affinity;
  now.pending_weight = affinity.pending_weight;
  now.load_tokens = affinity.load_tokens;
  now.hot_factor = affinity.hot_factor;
  now.evict_weight = affinity.evict_weight;
  now.noise_tokens = affinity.noise_tokens;
  options_.planner.tick = planner.tick;
  options_.planner.kv_share = planner.kv_share;
  options_.planner.max_sets_per_node = planner.max_sets_per_node;
  options_.planner.max_nodes_per_set = planner.max_nodes_per_set;
  planning_.change(options_.planner);
  known_.loads.change(now);
  if (!policy_info(options_.policy).follows_table) return;  // the baselines keep state of their own
  policy_ = make_policy(options_.policy, now);
  policy_->update_cluster(*known_.view);
}

// Forgets the last node of each reused slot, so that nothing of it counts for the new one.
bool Router::forget_replaced(const ClusterView& next) {
  std::vector<NodeIndex> replaced;
  const size_t both = std::min(next.size(), known_.view->size());
  for (NodeIndex n = 0; n < both; ++n) {
    if (next.node(n).hash != known_.view->node(n).hash) replaced.push_back(n);
  }
  if (replaced.empty()) return false;
  planning_.remove_nodes(replaced);
  placements_.remove_nodes(replaced);
  for (const NodeIndex n : replaced) {
    known_.handover.come_back(n);
    forget_node(n);
    policy_->replace_node(n);
    known_.shadow.set_budget(n, options_.memory.node_kv_tokens_guess);
  }
  return true;
}

}  // namespace troupe::route
