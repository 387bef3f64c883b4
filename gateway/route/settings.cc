#include "gateway/route/settings.h"

#include "gateway/route/policy/policy.h"

namespace troupe::route {

void describe_policy(SettingsSchema& schema, RouterOptions& r) {
  schema.add("policy", &r.policy, "how requests are placed").choices(policy_names());
  schema.add_enum("mode", &r.affinity.mode, kModeNames,
                  "affinity: where what nodes hold is known from; strict: sets stay on their nodes");
}

void describe_route(SettingsSchema& schema, RouterOptions& r) {
  schema
      .add("route.pending_weight", &r.affinity.pending_weight,
           "a pending token of others against a missing one of one's own")
      .range(0, 10)
      .live();
  schema.add("route.load_tokens", &r.affinity.load_tokens, "what a node's relative load weighs")
      .range(0, 1e6)
      .unit("tokens")
      .live();
  schema
      .add("route.hot_factor", &r.affinity.hot_factor,
           "copies a hot set grows to, over its share of the fleet")
      .range(0, 1000)
      .live();
  schema
      .add("route.evict_weight", &r.affinity.evict_weight,
           "tokens that a conversation would evict while another worker has room, against missing ones")
      .range(0, 100)
      .live();
  schema.add("route.noise_tokens", &r.affinity.noise_tokens, "keeps several gateways from choosing alike")
      .range(0, 1e6)
      .unit("tokens")
      .live();
  schema.add_fraction("route.plan_interval_s", &r.planner.tick, "between two plans of the table")
      .range(0.1, 3600)
      .unit("seconds")
      .live();
  schema.add("route.plan_kv_share", &r.planner.kv_share, "of a worker's KV cache that planned sets may fill")
      .range(0.01, 1)
      .live();
  schema.add("route.strict_sets", &r.planner.strict_sets, "strict: sets that all personas are divided into")
      .range(1, 1e6);
  schema
      .add("route.max_sets_per_node", &r.planner.max_sets_per_node,
           "strict: of those, a worker is given at most")
      .range(1, 1e6)
      .live();
  schema
      .add("route.max_nodes_per_set", &r.planner.max_nodes_per_set, "homes a set gets, at most; 0: no limit")
      .range(0, 1e6)
      .live();
  schema.add("route.sets_max", &r.memory.sets_max, "sets remembered, the least recently used is forgotten")
      .range(1, 1e7);
  schema
      .add("route.placements_per_node", &r.memory.placements_per_node,
           "sets and conversations remembered for each worker, likewise")
      .range(1, 1e7);
  schema
      .add("route.anchors_max", &r.sketch.anchors_max,
           "ends of messages, and conversations, remembered to learn what prompts share, likewise")
      .range(64, 1e7);
  schema
      .add("route.node_kv_tokens", &r.memory.node_kv_tokens_guess, "KV cache of a worker that does not tell")
      .range(1024, 1e12)
      .unit("tokens");
}

void settle_route(RouterOptions& router) {
  router.sketch.sessions_max = router.sketch.anchors_max;
}

}  // namespace troupe::route
