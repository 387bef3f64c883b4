#pragma once

// Synthetic clusters, requests and time for the routing tests.

#include <memory>
#include <string>
#include <vector>

#include "gateway/route/fleet/view.h"
#include "gateway/route/key/prefix_key.h"
#include "gateway/route/router.h"

namespace troupe::route::testing_cluster {

inline TimePoint at_ms(int64_t ms) {
  return TimePoint{} + std::chrono::seconds(1000) + std::chrono::milliseconds(ms);
}

inline std::vector<NodeView> nodes(size_t count, std::vector<double> weights = {}) {
  std::vector<NodeView> all;
  for (size_t i = 0; i < count; ++i) {
    NodeView node;
    node.id = "10.0.0." + std::to_string(i) + ":31000";
    node.url = "http://" + node.id;
    node.state = NodeState::kAlive;
    node.models = {"demo"};
    if (i < weights.size()) node.weight = weights[i];
    all.push_back(node);
  }
  return all;
}

inline std::shared_ptr<const ClusterView> cluster(size_t count, std::vector<double> weights = {}) {
  return std::make_shared<ClusterView>(1, nodes(count, std::move(weights)));
}

inline std::shared_ptr<const ClusterView> with_state(const ClusterView& view, NodeIndex node,
                                                     NodeState state) {
  std::vector<NodeView> all(view.nodes().begin(), view.nodes().end());
  all[node].state = state;
  return std::make_shared<ClusterView>(view.epoch() + 1, std::move(all));
}

inline Hash128 numbered_set(int number) {
  return hash_bytes("set " + std::to_string(number));
}

// A request of persona `set` (none below zero) in conversation `session` (none below zero), lengths in
// tokens.
inline PrefixKey key(int set, int session, int64_t prefix = 1000, int64_t prompt = 1100) {
  PrefixKey k;
  if (set >= 0) {
    k.set = numbered_set(set);
    k.prefix_tokens = prefix;
    k.prefix_messages = 1;
  }
  if (session >= 0) k.session = hash_bytes("session " + std::to_string(session));
  k.prompt_tokens = prompt;
  return k;
}

inline Router router_over(std::shared_ptr<const ClusterView> view, RouterOptions options = {},
                          uint64_t seed = 1) {
  Router router(options, seed);
  router.update_cluster(std::move(view));
  return router;
}

inline Candidate to(NodeIndex node) {
  Candidate candidate;
  candidate.node = node;
  return candidate;
}

// Sends, answers and finishes a request there.
inline void serve_at(Router& router, const PrefixKey& k, NodeIndex node, TimePoint now) {
  InFlight sent = router.on_sent(k, "demo", to(node), now);
  router.first_byte(k, sent, now);
  router.on_finished(k, sent, AnswerCounts{k.prompt_tokens, 100, 0, false}, now);
}

// The same at the first choice.
inline NodeIndex serve(Router& router, const PrefixKey& k, TimePoint now) {
  const NodeIndex node = router.decide(k, "demo", now).order[0].node;
  serve_at(router, k, node, now);
  return node;
}

// `requests` without a set at a node, prompts computed, never finished.
inline void crowd(Router& router, NodeIndex node, int requests, TimePoint now) {
  for (int i = 0; i < requests; ++i) {
    const PrefixKey k = key(-1, -1, 0, 200);
    InFlight sent = router.on_sent(k, "demo", to(node), now);
    router.first_byte(k, sent, now);
  }
}

}  // namespace troupe::route::testing_cluster
