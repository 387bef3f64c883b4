#pragma once

// The routing state as one object: what is known of the fleet (cluster_state.h), the policy (policy.h), and
// three parts with interfaces of their own: planning() of the table (table_planning.h), placements() of
// requests (placement_tracker.h), targets() of handovers (handover_targets.h). Pure: time comes in as an
// argument and never runs backwards, randomness comes from the seed.
//
// A gateway or a simulator drives it so (one Router a gateway; the Routers of one run may share an
// ExactResidency):
//
// clang-format off
//   router.update_cluster(view)             at the start and whenever the cluster changes. Slots are stable;
//                                           one whose node is gone for good may be reused once the owner has
//                                           no InFlight, Candidate or PeerLoad that means the old node by it
//   router.refine(key)                      names the key's set by what on_sent() has learned
//                                           (shared_prefix_detector.h); omitted if the caller knows its sets
//   d = router.decide(key, model, now)      chooses, books nothing. d.order: first choice first; may be empty
//   s = router.on_sent(key, model, c, now)  the request goes to candidate c of d.order: c's load rises
//   router.first_byte(key, s, now)          the first token came: c holds the prompt, nothing is pending
//   router.on_finished(key, s, counts, now) exactly once for every on_sent(); counts as reported by the
//                                           answer. Failed before a first byte: on_finished(…, nullopt), then
//                                           on_sent() to the next of the order, or decide() anew
//   router.forget_node(n)                   n died or its cache began empty: before update_cluster() of its
//                                           death
//   router.report(n, report, now)           every 100 ms or so, a node's NodeReport
//   router.residency(n, event)              exact mode: a worker's event; kGap: bring a kSnapshot. The owner
//                                           of a shared ExactResidency applies events (and forget_node) to it
//                                           itself, once, from an empty kSnapshot on, and skips this call
//   router.plan(now)                        at least every second; plans once a tick, from its own sample.
//                                           Exact and gossip modes route without a table: it is shown only
//   router.plan(now, loads)                 instead, every PlannerOptions::tick: the fleet's loads
//                                           (SetLoadMerger, set_stats.h)
//   targets().sets_of(n)                    a node drains: handover().leave(…) moves its sets once they are
//                                           computed elsewhere
//   targets().sets_for(n, …)                a node begins with an empty cache: handover().join(…)
//   GossipRounds (gossip_rounds.h)          with several gateways, each with its own name in its options:
//                                           placements, loads, announcements, samples, tables. By hand:
//   placements().take() → adopt()           gossip mode, every 20..100 ms
//   export_peer_loads(all) →                with affinity.peer_ledger, every 20 ms
//     apply_peer_loads()
//   planning().announcement() → observe()   at least every second: one of them plans for all (gateways.h)
//   planning().own().message() →            with each new number(), where they plan by plan(now)
//     adopt_sample()
//   planning().has_stale_table(name):       table_message() goes to that gateway's adopt_table()
//   planning().loads_message() →            with RouterOptions::shared_table, instead of announcements,
//     adopt_loads_message(), draft_table()  samples and tables (LeaderSync, leader_sync.h)
// clang-format on
//
// Keys: make_prefix_key() or by hand. Where lengths are known, fill prompt_tokens, prefix_tokens and
// history_tokens (and anchors[i].tokens): then none are guessed from bytes. A request without a session is
// found by its anchors (name them in residency events as kSession items). Set AffinityOptions::gateways.
//
// Not thread-safe: one thread, or a simulator's.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/route/handover_targets.h"
#include "gateway/route/key/shared_prefix_detector.h"
#include "gateway/route/options.h"
#include "gateway/route/placement_tracker.h"
#include "gateway/route/policy/candidates.h"
#include "gateway/route/policy/cluster_state.h"
#include "gateway/route/policy/policy.h"
#include "gateway/route/router_core.h"
#include "gateway/route/table_planning.h"

namespace troupe::route {

struct Decision {
  CandidateOrder order;
  uint64_t table_epoch = 0;
  uint64_t view_epoch = 0;
};

// A request on its way to a node; handed back with on_finished().
struct InFlight {
  LoadTracker::Ticket ticket;
  NodeIndex node = kNoNode;
  uint64_t id = 0;
  uint32_t incarnation = 0;  // of the node: an answer from another life says nothing about this one
  RequestTokens tokens;
  int64_t expect_cached = 0;
  int64_t work_tokens = 0;  // as estimated
  bool continued = false;   // the node held the session already
  bool answered = false;    // a first byte came
};

class Router {
 public:
  Router(const RouterOptions& options, uint64_t seed, std::shared_ptr<ExactResidency> shared = nullptr);

  // router_change.cc
  // Replaces the weights of `affinity` and the planner's rules. Policy, mode, remembered state and this
  // gateway's identity stay.
  void change(const AffinityOptions& affinity, const PlannerOptions& planner);
  // A new cluster. Homes that are gone are replaced at once.
  void update_cluster(std::shared_ptr<const ClusterView> view);
  void plan(TimePoint now) { planning_.plan(now); }
  void plan(TimePoint now, SetLoads loads) { planning_.plan(now, std::move(loads)); }

  void refine(PrefixKey& key) const { shared_prefixes_.refine(key); }
  int64_t prompt_tokens(const PrefixKey& key) const { return tokens_of(key).prompt; }  // as far as known
  // Approximate tokens of an answer; a guess before the first one.
  int64_t usual_answer_tokens() const;
  Decision decide(const PrefixKey& key, std::string_view model, TimePoint now);
  // Called when all of the order has failed. In strict mode, where a set may use its homes only, the set then
  // gets another home at once and the order goes on there. False: no node is left.
  bool may_extend(const PrefixKey& key, const Decision& decision) const;
  bool extend(const PrefixKey& key, std::string_view model, Decision& decision, TimePoint now);
  // The decision that decide() would return now; does not change the next decide().
  Decision preview(const PrefixKey& key, std::string_view model, TimePoint now);
  // `answers`: choices that the request asks for (n).
  InFlight on_sent(const PrefixKey& key, std::string_view model, const Candidate& candidate, TimePoint now,
                   int64_t answers = 1);
  // This gateway's table has the node among the homes of the request's set.
  bool at_home(const PrefixKey& key, std::string_view model, NodeIndex node) const;
  void first_byte(const PrefixKey& key, InFlight& sent, TimePoint now);
  void on_finished(const PrefixKey& key, InFlight& sent, const std::optional<AnswerCounts>& counts,
                   TimePoint now);

  void forget_node(NodeIndex node);
  void report(NodeIndex node, const NodeReport& report, TimePoint now);
  FeedResult residency(NodeIndex node, const ResidencyEvent& event) {
    return placements_.residency(node, event);
  }
  // The stream of a node's events broke.
  void residency_lost(NodeIndex node) { known_.exact->feeds.lost(node); }

  TablePlanning& planning() { return planning_; }
  const TablePlanning& planning() const { return planning_; }
  PlacementTracker& placements() { return placements_; }
  const PlacementTracker& placements() const { return placements_; }
  HandoverTargets targets() { return {*core_, placements_}; }
  Handover& handover() { return known_.handover; }

  // For each set in the table: the node a new conversation would be sent to now, and the next if that one
  // fails; kNoNode: none. The order of candidates decides it, also where the set has a single home.
  struct NextHop {
    Hash128 set;
    NodeIndex first = kNoNode, second = kNoNode;
  };
  std::vector<NextHop> next_hops(TimePoint now) const;
  std::vector<PeerLoad> export_peer_loads(bool all);
  void apply_peer_loads(uint32_t gateway, std::span<const PeerLoad> loads) {
    known_.loads.peer_loads(gateway, loads);
  }
  void forget_gateway(uint32_t gateway) { known_.loads.forget_peer(gateway); }

  // Gateways that share the fleet, this one included.
  void set_gateways(int64_t count) { known_.gateways = count; }
  const ClusterState& known() const { return known_; }
  const ClusterView& view() const { return *known_.view; }
  const std::shared_ptr<const SetTable>& table() const { return known_.table; }
  const LoadTracker& loads() const { return known_.loads; }
  const TokenRatio& ratio() const { return known_.ratio; }
  const RouterOptions& options() const { return options_; }

 private:
  bool forget_replaced(const ClusterView& next);
  void advance(TimePoint now);
  Decision choose(const PrefixKey& key, std::string_view model, TimePoint now, Random& random) const;
  RequestTokens tokens_of(const PrefixKey& key) const;
  int64_t work_of(const InFlight& sent, const std::optional<AnswerCounts>& counts) const;
  void place(const PrefixKey& key, const InFlight& sent, TimePoint now);
  bool same_incarnation(const InFlight& sent) const {
    return known_.loads.at(sent.node).incarnation == sent.incarnation;
  }
  PolicyRequest request_of(const PrefixKey& key, const InFlight& sent) const;

  std::unique_ptr<RouterCore> core_;  // the parts refer to it, wherever the router moves
  RouterOptions& options_;
  ClusterState& known_;
  Random random_;
  uint64_t turn_ = 0;
  uint64_t sent_count_ = 0;
  std::unique_ptr<RoutePolicy> policy_;
  TablePlanning planning_;
  PlacementTracker placements_;
  SharedPrefixDetector shared_prefixes_;
  double completion_mean_ = 0;  // mean tokens of an answer, decaying
};

}  // namespace troupe::route
