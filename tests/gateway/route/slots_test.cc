// A slot that another node reuses after the first is gone for good: none of the router's state about the
// first counts for the second.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <span>

#include "gateway/route/placement/table_codec.h"
#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace slots_test {

using namespace testing_cluster;

constexpr NodeIndex kSlot = 1;

// The same slots, but another node where `node` was.
std::shared_ptr<const ClusterView> with_other(const ClusterView& view, NodeIndex node, NodeState state) {
  std::vector<NodeView> all(view.nodes().begin(), view.nodes().end());
  all[node].id = "10.9.9.9:31000";
  all[node].url = "http://" + all[node].id;
  all[node].state = state;
  return std::make_shared<ClusterView>(view.epoch() + 1, std::move(all));
}

RouterOptions options_of(Mode mode) {
  RouterOptions options;
  options.name = Hash128{0, 7};
  options.affinity.mode = mode;
  options.affinity.gateways = 2;
  options.affinity.peer_ledger = true;
  return options;
}

// A router that has sent much to the slot's node, and has planned.
Router busy_router(Mode mode) {
  Router router = router_over(cluster(3), options_of(mode));
  for (int i = 0; i < 30; ++i) {
    serve_at(router, key(i, i), static_cast<NodeIndex>(i % 3), at_ms(i));
    router.placements().take();
  }
  NodeReport report;
  report.kv_tokens_total = 5000;
  report.work_tokens_total = 1000;
  router.report(kSlot, report, at_ms(100));
  const PeerLoad load{kSlot, 9, 900};
  router.apply_peer_loads(1, std::span(&load, 1));
  router.plan(at_ms(5000));
  crowd(router, kSlot, 5, at_ms(5001));
  serve_at(router, key(1, 1), kSlot, at_ms(5002));
  return router;
}

size_t homes_at(const SetTable& table, NodeIndex node) {
  size_t count = 0;
  for (const auto& [set, homes] : table.sets()) count += homes.contains(node) ? 1 : 0;
  return count;
}

TEST(Slots, NextNodeOfASlotInheritsNothing) {
  for (const Mode mode : {Mode::kGossip, Mode::kExact, Mode::kPlan}) {
    Router router = busy_router(mode);
    ASSERT_GT(router.loads().at(kSlot).in_flight, 0);
    const std::array<ResidencyItem, 1> items{ResidencyItem{numbered_set(3), HolderKind::kSet, 1000}};
    router.residency(kSlot, {ResidencyEvent::Kind::kSnapshot, 5, 1, items});
    // Without a death in between, so that nothing else has made it forget.
    router.update_cluster(with_other(router.view(), kSlot, NodeState::kUnknown));
    EXPECT_EQ(router.known().shadow.items_of(kSlot), 0u);
    EXPECT_EQ(router.known().exact->index.items_of(kSlot), 0u);
    EXPECT_FALSE(router.known().exact->feeds.in_step(kSlot));
    EXPECT_EQ(router.loads().at(kSlot).in_flight, 0);
    EXPECT_EQ(router.loads().at(kSlot).peers_requests, 0);
    EXPECT_FALSE(router.loads().at(kSlot).reported);
    EXPECT_EQ(router.loads().work_rate(kSlot), 0);
    EXPECT_EQ(homes_at(*router.table(), kSlot), 0u) << "it has not been asked whether it lives";
    for (const Placement& placed : router.placements().take()) EXPECT_NE(placed.node, kSlot);
  }
}

// Another planner continues with the others' table, which they know by its nodes' names.
TEST(Slots, CommonTableStaysUnchangedForThePeers) {
  Router router = busy_router(Mode::kPlan);
  const auto before = router.view();
  const auto version = router.planning().version();
  const size_t homes = homes_at(*router.table(), kSlot);
  ASSERT_GT(homes, 0u);
  Router follower = router_over(cluster(3), options_of(Mode::kPlan));
  ASSERT_TRUE(follower.planning().adopt_table(router.planning().table_message()).ok());
  ASSERT_EQ(homes_at(*follower.table(), kSlot), homes);
  follower.update_cluster(with_other(follower.view(), kSlot, NodeState::kAlive));
  EXPECT_EQ(follower.planning().version(), version);
  // Locally other nodes are the homes; the table that it passes on still names the first node.
  const auto passed_on = decode_plan(follower.planning().table_message(), before);
  ASSERT_TRUE(passed_on.ok()) << passed_on.status();
  EXPECT_EQ(homes_at(*passed_on->table, kSlot), homes);
  EXPECT_FALSE(passed_on->partial);
}

TEST(Slots, LateRequestDoesNotAffectTheNextNode) {
  for (const char* policy : {"affinity", "sglang-cache-aware", "dynamo", "gie", "preble", "chwbl"}) {
    RouterOptions options = options_of(Mode::kGossip);
    options.policy = policy;
    Router router = router_over(cluster(3), options);
    const PrefixKey k = key(1, 1);
    for (int i = 0; i < 4; ++i) serve_at(router, k, kSlot, at_ms(i));
    InFlight sent = router.on_sent(k, "demo", to(kSlot), at_ms(10));
    router.update_cluster(with_state(router.view(), kSlot, NodeState::kDead));
    router.update_cluster(with_other(router.view(), kSlot, NodeState::kAlive));
    router.on_finished(k, sent, AnswerCounts{1100, 10, 1000, true}, at_ms(20));
    EXPECT_EQ(router.loads().at(kSlot).in_flight, 0) << policy;
    EXPECT_EQ(router.known().shadow.tokens(k.set, kSlot), 0) << policy;
    const Decision decision = router.decide(k, "demo", at_ms(30));
    EXPECT_FALSE(decision.order.empty()) << policy;
    for (const Candidate& candidate : decision.order.all())
      EXPECT_EQ(candidate.expect_cached, 0) << policy << " at " << candidate.node;
  }
}

}  // namespace slots_test
}  // namespace troupe::route
