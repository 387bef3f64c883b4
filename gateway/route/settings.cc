#include "gateway/route/settings.h"

#include <chrono>

#include "gateway/route/policy/policy.h"

namespace troupe::route {

void describe_policy(SettingsSchema& schema, RouteSettings& s) {
  schema.add("policy", &s.policy, "how requests are placed").choices(policy_names());
  schema
      .add("mode", &s.mode, "affinity: where what nodes hold is known from; strict: sets stay on their nodes")
      .choices(mode_names());
}

void describe_route(SettingsSchema& schema, RouteSettings& s) {
  schema
      .add("route.pending_weight", &s.pending_weight,
           "a pending token of others against a missing one of one's own")
      .range(0, 10)
      .live();
  schema.add("route.load_tokens", &s.load_tokens, "what a node's relative load weighs")
      .range(0, 1e6)
      .unit("tokens")
      .live();
  schema.add("route.hot_factor", &s.hot_factor, "copies a hot set grows to, over its share of the fleet")
      .range(0, 1000)
      .live();
  schema.add("route.noise_tokens", &s.noise_tokens, "keeps several gateways from choosing alike")
      .range(0, 1e6)
      .unit("tokens")
      .live();
  schema.add("route.plan_interval_s", &s.plan_interval_s, "between two plans of the table")
      .range(0.1, 3600)
      .unit("seconds")
      .live();
  schema.add("route.plan_kv_share", &s.plan_kv_share, "of a worker's KV cache that planned sets may fill")
      .range(0.01, 1)
      .live();
  schema.add("route.strict_sets", &s.strict_sets, "strict: sets that all personas are divided into")
      .range(1, 1e6);
  schema.add("route.max_sets_per_node", &s.max_sets_per_node, "strict: of those, a worker is given at most")
      .range(1, 1e6)
      .live();
  schema.add("route.max_nodes_per_set", &s.max_nodes_per_set, "homes a set gets, at most; 0: no limit")
      .range(0, 1e6)
      .live();
  schema.add("route.sets_max", &s.sets_max, "sets remembered, the least recently used is forgotten")
      .range(1, 1e7);
  schema
      .add("route.placements_per_node", &s.placements_per_node,
           "sets and conversations remembered for each worker, likewise")
      .range(1, 1e7);
  schema
      .add("route.anchors_max", &s.anchors_max,
           "ends of messages, and conversations, remembered to learn what prompts share, likewise")
      .range(64, 1e7);
  schema.add("route.node_kv_tokens", &s.node_kv_tokens, "KV cache of a worker that does not tell")
      .range(1024, 1e12)
      .unit("tokens");
}

Status apply_route(const RouteSettings& s, RouterOptions& router) {
  TROUPE_RETURN_IF_ERROR(check_policy(s.policy));
  router.policy = s.policy;
  TROUPE_ASSIGN_OR_RETURN(router.affinity.mode, parse_mode(s.mode));
  router.affinity.pending_weight = s.pending_weight;
  router.affinity.load_tokens = s.load_tokens;
  router.affinity.hot_factor = s.hot_factor;
  router.affinity.noise_tokens = s.noise_tokens;
  router.planner.tick =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s.plan_interval_s));
  router.planner.kv_share = s.plan_kv_share;
  router.planner.strict_sets = static_cast<size_t>(s.strict_sets);
  router.planner.max_sets_per_node = static_cast<size_t>(s.max_sets_per_node);
  router.planner.max_nodes_per_set = static_cast<size_t>(s.max_nodes_per_set);
  router.memory.sets_max = static_cast<size_t>(s.sets_max);
  router.memory.placements_per_node = static_cast<size_t>(s.placements_per_node);
  router.sketch.anchors_max = router.sketch.sessions_max = static_cast<size_t>(s.anchors_max);
  router.memory.node_kv_tokens_guess = s.node_kv_tokens;
  return absl::OkStatus();
}

}  // namespace troupe::route
