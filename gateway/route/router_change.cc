// What of a router an operator may change while it runs.

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
  if (options_.policy != "affinity") return;  // the others have memories of their own
  policy_ = make_policy(options_.policy, now);
  policy_->adopt(*known_.view);
}

}  // namespace troupe::route
