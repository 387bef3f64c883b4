// The cost's part for KV memory, and where personas go that no worker tells of.

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace kv_room_test {

using namespace testing_cluster;

// A fleet of nodes that keep what they computed until it no longer fits, and report it.
class RoomyFleet {
 public:
  RoomyFleet(size_t nodes, int64_t kv_tokens) : router_(router_over(cluster(nodes))), kv_(kv_tokens) {
    held_.resize(nodes);
    for (NodeIndex n = 0; n < nodes; ++n) tell(n, {});
  }
  // Serves a conversation's first prompt, and returns its node.
  NodeIndex begin(int set, int session, int64_t prefix, int64_t prompt) {
    now_ += 100;
    const PrefixKey k = key(set, session, prefix, prompt);
    const NodeIndex node = serve(router_, k, at_ms(now_));
    const bool held = router_.known().exact->index.tokens(k.set, node) > 0;
    held_[node] += prompt - (held ? prefix : 0);
    tell(node, k);
    return node;
  }
  void fill(NodeIndex node, int64_t tokens) {
    held_[node] += tokens;
    tell(node, {});
  }
  int64_t held(NodeIndex node) const { return held_[node]; }
  Router& router() { return router_; }

 private:
  void tell(NodeIndex node, const PrefixKey& k) {
    NodeReport report;
    report.kv_tokens_total = report.kv_tokens_free = kv_;
    report.kv_tokens_cached = std::min(held_[node], kv_);
    router_.report(node, report, at_ms(now_));
    const ResidencyItem items[] = {{k.set, HolderKind::kSet, k.prefix_tokens},
                                   {k.session, HolderKind::kSession, k.prompt_tokens}};
    ResidencyEvent event;
    event.epoch = 1;
    event.seq = ++seq_[node];
    if (event.seq > 1) event.kind = ResidencyEvent::Kind::kAdmitted;
    if (!k.session.is_zero()) event.items = items;
    EXPECT_EQ(router_.residency(node, event), FeedResult::kApplied);
  }

  Router router_;
  const int64_t kv_;
  std::vector<int64_t> held_;
  std::map<NodeIndex, uint64_t> seq_;
  int64_t now_ = 0;
};

// One persona and little traffic: no load drives its conversations apart, only the memory that they need.
TEST(KvRoom, ConversationsGoWhereMemoryIsFreeOnceTheirPersonasNodeIsFull) {
  struct Case {
    int64_t prefix, own;
  };
  for (const auto& [prefix, own] : {Case{512, 1024}, Case{3000, 300}, Case{100, 4000}, Case{0, 1000}}) {
    constexpr int64_t kKv = 65'536;
    RoomyFleet fleet(4, kKv);
    const int64_t fitting = (kKv - prefix) / own;
    for (int session = 0; session < 4 * fitting - 8; ++session)
      fleet.begin(prefix > 0 ? 1 : -1, session, prefix, prefix + own);
    for (NodeIndex n = 0; n < 4; ++n)
      EXPECT_LE(fleet.held(n), kKv + own) << prefix << " + " << own << " at " << n;
  }
}

// One persona of many keeps its node, whose memory has room: nobody computes it anew for nothing.
TEST(KvRoom, PersonaKeepsToItsNodeWhileThereIsRoom) {
  RoomyFleet fleet(4, 65'536);
  const NodeIndex home = fleet.begin(1, 0, 512, 812);
  for (int session = 1; session < 150; ++session) EXPECT_EQ(fleet.begin(1, session, 512, 812), home);
}

// Where all evict, it weighs nothing.
TEST(KvRoom, EvictionWeighsNothingWhereNoNodeHasRoom) {
  RoomyFleet fleet(4, 65'536);
  const NodeIndex home = fleet.begin(1, 0, 512, 1536);
  for (NodeIndex n = 0; n < 4; ++n) fleet.fill(n, 65'536);
  for (int session = 1; session < 50; ++session) {
    const Decision decision = fleet.router().decide(key(1, session, 512, 1536), "demo", at_ms(10'000));
    EXPECT_EQ(decision.order[0].node, home);
    EXPECT_EQ(decision.order[0].evict, 0);
  }
}

TEST(KvRoom, ConversationStaysWhereItIsThoughMemoryIsFreeElsewhere) {
  RoomyFleet fleet(4, 65'536);
  const NodeIndex home = fleet.begin(1, 7, 512, 1536);
  fleet.fill(home, 65'536);
  const Decision decision = fleet.router().decide(key(1, 7, 512, 1700), "demo", at_ms(10'000));
  EXPECT_EQ(decision.order[0].node, home);
  EXPECT_EQ(decision.order[0].branch, Branch::kSession);
}

RouterOptions of_gateways(int64_t gateways) {
  RouterOptions options;
  options.affinity.gateways = gateways;
  return options;
}

// Workers that tell no residency: where the persona goes follows from its name, so that a gateway that begins
// again, or another one, finds it.
TEST(Rendezvous, SilentWorkersGetPersonasByRendezvous) {
  for (const int64_t gateways : {1, 3}) {
    std::map<int, NodeIndex> first;
    std::map<NodeIndex, int> used;
    for (uint64_t life = 0; life < 3; ++life) {
      Router router = router_over(cluster(4), of_gateways(gateways), life);
      for (int set = 0; set < 200; ++set) {
        const NodeIndex node = serve(router, key(set, static_cast<int>(life) * 1000 + set), at_ms(set));
        if (life == 0) first[set] = node;
        if (life == 0) used[node] += 1;
        EXPECT_EQ(node, first[set]);
      }
    }
    for (const auto& [node, count] : used) EXPECT_NEAR(count, 50, 25) << node;
  }
}

// One worker of ours beside three of another kind: it gets a share of the personas, not all.
TEST(Rendezvous, AWorkerThatReportsIsOneAmongTheSilent) {
  Router router = router_over(cluster(4));
  ResidencyEvent snapshot;
  snapshot.epoch = 1;
  snapshot.seq = 1;
  ASSERT_EQ(router.residency(0, snapshot), FeedResult::kApplied);
  std::map<NodeIndex, int> used;
  for (int set = 0; set < 200; ++set) used[serve(router, key(set, set), at_ms(set))] += 1;
  for (NodeIndex n = 0; n < 4; ++n) EXPECT_NEAR(used[n], 50, 25) << n;
}

}  // namespace kv_room_test
}  // namespace troupe::route
