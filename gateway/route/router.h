#pragma once

// The routing state as one object: what is known of the fleet (cluster_state.h), the policy (policy.h), the
// table and its planner. Pure: time comes in as an argument and never runs backwards, randomness comes from
// the seed.
//
// A gateway or a simulator drives it so (one Router a gateway; the Routers of one run may share an
// ExactResidency):
//
// clang-format off
//   router.adopt(view)                      at the start and whenever the cluster changes. Slots are stable;
//                                           one whose node is gone for good may be reused once the owner has
//                                           no Sent, Candidate or PeerLoad that means the old node by it
//   router.refine(key)                      names the key's set by what sent() has learned
//                                           (shared_prefix_detector.h); omitted if the caller knows its sets
//   d = router.decide(key, model, now)      chooses, books nothing. d.order: first choice first; may be empty
//   s = router.sent(key, model, c, now)     the request goes to candidate c of d.order: c's load rises
//   router.first_byte(key, s, now)          the first token came: c holds the prompt, nothing is pending
//   router.finished(key, s, counts, now)    exactly once for every sent(); counts as reported by the answer.
//                                           Failed before a first byte: finished(…, nullopt), then sent() to
//                                           the next of the order, or decide() anew
//   router.forget_node(n)                   n died or its cache began empty: before adopt() of its death
//   router.report(n, report, now)           every 100 ms or so, a node's NodeReport
//   router.residency(n, event)              exact mode: a worker's event; kGap: bring a kSnapshot. The owner
//                                           of a shared ExactResidency applies events (and forget_node) to it
//                                           itself, once, from an empty kSnapshot on, and skips this call
//   router.plan(now)                        at least every second; plans once a tick, from its own sample.
//                                           Exact and gossip modes route without a table: it is shown only
//   router.plan(now, loads)                 instead, every PlannerOptions::tick: the fleet's loads
//                                           (SetLoadMerger, set_stats.h)
//   router.sets_of(n) → handover().leave(…) a node drains: its sets move once they are computed elsewhere
//   router.sets_for(n, …) → .join(…)        a node begins with an empty cache (handover.h)
//   router.take_placements() → others'      gossip mode, every 20..100 ms. A network uses
//     adopt_placements()                    encode/decode_placements (gossip.h), a simulator neither
//   router.news() → others' heard()         with several gateways (each with its own name in its options), at
//                                           least every second: one of them plans for all (gateways.h)
//   router.sample_message() → others'       with each new samples(), where they plan by plan(now)
//     adopt_sample()
//   lacks_table(name): table_message()      goes to that gateway's adopt_table()
//   router.loads_message() → others'        with RouterOptions::shared_table, instead of news, samples and
//     adopt_loads_message(), draft_table()  tables (shared_table.h)
//   router.take_ledger(all) → others'       with affinity.peer_ledger, every 20 ms: adopt_ledger(gateway, …)
//     adopt_ledger()
// clang-format on
//
// Keys: make_prefix_key() or by hand. Where lengths are known, fill prompt_tokens, prefix_tokens and
// history_tokens (and anchors[i].tokens): then none are guessed from bytes. A request without a session is
// found by its anchors (name them in residency events as kSession items). Set AffinityOptions::gateways.
//
// Not thread-safe: one thread, or a simulator's.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/route/key/shared_prefix_detector.h"
#include "gateway/route/options.h"
#include "gateway/route/placement/gateways.h"
#include "gateway/route/placement/gossip.h"
#include "gateway/route/placement/planner.h"
#include "gateway/route/placement/shared_loads.h"
#include "gateway/route/placement/table_codec.h"
#include "gateway/route/policy/candidates.h"
#include "gateway/route/policy/cluster_state.h"
#include "gateway/route/policy/policy.h"

namespace troupe::route {

struct Decision {
  CandidateOrder order;
  uint64_t table_epoch = 0;
  uint64_t view_epoch = 0;
};

// A request on its way to a node; handed back with finished().
struct Sent {
  LoadTracker::Ticket ticket;
  NodeIndex node = kNoNode;
  uint64_t id = 0;
  uint32_t life = 0;  // of the node: an answer from another life says nothing about this one
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
  void adopt(std::shared_ptr<const ClusterView> view);
  void plan(TimePoint now);
  void plan(TimePoint now, SetLoads loads);

  void refine(PrefixKey& key) const { sketch_.refine(key); }
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
  Sent sent(const PrefixKey& key, std::string_view model, const Candidate& candidate, TimePoint now,
            int64_t answers = 1);
  // This gateway's table has the node among the homes of the request's set.
  bool at_home(const PrefixKey& key, std::string_view model, NodeIndex node) const;
  void first_byte(const PrefixKey& key, Sent& sent, TimePoint now);
  void finished(const PrefixKey& key, Sent& sent, const std::optional<AnswerCounts>& counts, TimePoint now);

  void forget_node(NodeIndex node);
  void report(NodeIndex node, const NodeReport& report, TimePoint now);
  FeedResult residency(NodeIndex node, const ResidencyEvent& event);
  // The stream of a node's events broke.
  void residency_lost(NodeIndex node) { known_.exact->feeds.lost(node); }

  // router_handover.cc
  Handover& handover() { return known_.handover; }
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
  // For each set in the table: the node a new conversation would be sent to now, and the next if that one
  // fails; kNoNode: none. The order of candidates decides it, also where the set has a single home.
  struct Way {
    Hash128 set;
    NodeIndex first = kNoNode, second = kNoNode;
  };
  std::vector<Way> ways(TimePoint now) const;
  // A conversation as reported by a worker that leaves.
  struct Tail {
    Hash128 session, set;
    int64_t tokens = 0;      // from its first token on
    int64_t set_tokens = 0;  // of those, the set's prefix
  };
  // The node where the conversation continues: one that has its set, or is to have it; spread evenly.
  // kNoNode: it has continued elsewhere already, or no node is left.
  NodeIndex next_home(const Tail& tail, std::string_view model, NodeIndex from) const;
  void computed(const Tail& tail, NodeIndex node, TimePoint now);

  // Own placements since the last call, the oldest first; empty with one gateway, which has no peers.
  std::vector<Placement> take_placements();
  void adopt_placements(std::span<const Placement> placements);
  // For a gateway that has just begun and knows none: all known placements on nodes without a residency feed
  // in step; at most `max`, the most recently used of each node, in order of use.
  std::vector<Placement> all_placements(size_t max) const;
  std::vector<PeerLoad> take_ledger(bool all);
  void adopt_ledger(uint32_t gateway, std::span<const PeerLoad> loads) {
    known_.loads.peer_loads(gateway, loads);
  }
  void forget_gateway(uint32_t gateway) { known_.loads.forget_peer(gateway); }

  // Gateways that share the fleet, this one included.
  void set_gateways(int64_t count) { known_.gateways = count; }
  GatewayNews news() const;
  void heard(const GatewayNews& news, TimePoint now);
  bool lacks_table(const Hash128& gateway) const { return gateways_.lacks(gateway, news()); }
  const Gateways& gateways() const { return gateways_; }
  // The table that counts for all gateways, as far as this one has heard. table() differs from it while this
  // gateway knows homes to be gone.
  const TableVersion& table_version() const { return planner_.common().table->version(); }
  const std::string& table_message();
  // Number of the sample of set loads that plan(now) took last; 0: none yet.
  uint64_t samples() const { return samples_; }
  std::string sample_message() const { return encode_set_loads(sample_); }
  Status adopt_sample(const Hash128& gateway, std::string_view message, TimePoint now);
  // False: another gateway plans the table.
  bool plans_table() const { return options_.shared_table ? plans_here_ : plans_; }
  // Ignores an older table than ours, or one of another kind (gateways.h). The error names what is malformed.
  Status adopt_table(std::string_view message);
  uint64_t tables_of_other_kind() const { return tables_of_other_kind_; }  // ignored

  // With RouterOptions::shared_table: this gateway's message to the one that plans, its news and its sample,
  // some 160 KB at most. (Every plan(now) takes a sample.)
  std::string loads_message() const;
  Status adopt_loads_message(const Hash128& gateway, std::string_view message, TimePoint now);
  bool may_plan(TimePoint now) const { return gateways_.may_plan(news(), now); }
  // A successor of the table that counts, planned from the loads of all gateways; it counts once
  // adopt_table() receives it. Where the store has no table (any more): the current one. Empty: nothing
  // changes, or there are no loads to plan from.
  std::string draft_table(TimePoint now, bool there_is_one);
  void set_plans(bool plans) { plans_here_ = plans; }  // for display

  const ClusterState& known() const { return known_; }
  const SetStats& work() const { return work_; }  // what plan(now) goes by
  const ClusterView& view() const { return *known_.view; }
  const std::shared_ptr<const SetTable>& table() const { return known_.table; }
  const LoadTracker& loads() const { return known_.loads; }
  const TokenRatio& ratio() const { return known_.ratio; }
  const RouterOptions& options() const { return options_; }
  uint64_t placements_dropped() const { return placements_dropped_; }  // for a full outbox

 private:
  bool forget_replaced(const ClusterView& next);
  void advance(TimePoint now);
  void plan_from(SetLoads loads, TimePoint now);
  Decision choose(const PrefixKey& key, std::string_view model, TimePoint now, Random& random) const;
  RequestTokens tokens_of(const PrefixKey& key) const;
  int64_t work_of(const Sent& sent, const std::optional<AnswerCounts>& counts) const;
  void place(const PrefixKey& key, const Sent& sent, TimePoint now);
  void remember_own(Placement placed, TimePoint now);
  void forget_untold();
  bool takes_over(NodeIndex node, std::span<const NodeIndex> homes, NodeIndex from) const;
  bool table_decides() const {
    return options_.affinity.mode == Mode::kPlan || options_.affinity.mode == Mode::kStrict;
  }
  bool spreads(const Hash128& set, size_t holders, size_t nodes) const;
  std::vector<NodeIndex> others_with(const Hash128& set, std::string_view model, NodeIndex from) const;
  void place_chain(const PrefixKey& key, NodeIndex node);
  void remember(const Placement& placement);
  void tell(const Placement& placement);
  bool relies_on_shadow(NodeIndex node) const { return !known_.exact->feeds.in_step(node); }
  bool same_life(const Sent& sent) const { return known_.loads.at(sent.node).life == sent.life; }
  PolicyRequest request_of(const PrefixKey& key, const Sent& sent) const;
  Planner::Fleet fleet();

  RouterOptions options_;
  Random random_;
  uint64_t turn_ = 0;
  uint64_t sent_count_ = 0;
  bool shares_exact_;
  ClusterState known_;
  std::unique_ptr<RoutePolicy> policy_;
  Planner planner_;
  Gateways gateways_;
  SetLoads sample_;  // this gateway's own loads, kept where it has peers
  uint64_t samples_ = 0;
  SharedLoads others_loads_;
  // Work this gateway sent, by set, as answers report it: the input of tables where workers do not report it.
  // (Hot sets go by estimates, known_.sets, which have to be up to date at once.)
  SetStats work_;
  bool samples_work_ = true;  // plan(now) is used, not plan(now, loads)
  bool plans_ = true;         // this gateway plans the table that counts; never where it is shared
  bool plans_here_ = false;   // the same where it is shared
  bool has_loads_ = false;    // to plan from
  std::string message_;       // the table that counts, encoded on request or received
  TableVersion message_is_;   // its version
  uint64_t tables_of_other_kind_ = 0;
  SharedPrefixDetector sketch_;
  // Placed on nodes with a residency feed, and not yet reported by it; the oldest first.
  struct Untold {
    TimePoint until;
    Hash128 key;
    NodeIndex node;
  };
  std::deque<Untold> untold_;
  std::vector<int64_t> kv_tokens_;
  TimePoint planned_at_{};
  std::vector<Placement> outbox_;
  uint64_t placements_dropped_ = 0;
  double completion_mean_ = 0;  // mean tokens of an answer, decaying
};

}  // namespace troupe::route
