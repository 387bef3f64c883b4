// Gateways that share one table through a store, without the store: which may plan, the draft, and the table
// in force at each.

#include "gateway/route/placement/shared_table.h"

#include <gtest/gtest.h>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace {

using namespace testing_cluster;

TEST(SharedTable, NoGatewayCampaignsBeforeBothKeysWereSeen) {
  SharedTable state("me");
  state.lease_holds_until(at_ms(1000));
  EXPECT_FALSE(state.may_campaign(at_ms(0)));
  state.leader_is("", 0, 5);
  EXPECT_FALSE(state.may_campaign(at_ms(0)));
  state.table_is(0, 0, 5);
  EXPECT_TRUE(state.may_campaign(at_ms(0)));
  EXPECT_FALSE(state.may_campaign(at_ms(1000))) << "without a lease that holds";
}

TEST(SharedTable, OwnerOfTheKeyLeadsWhileItsLeaseHolds) {
  SharedTable state("me");
  state.lease_holds_until(at_ms(1000));
  state.leader_is("me", 7, 7);
  state.table_is(2, 3, 7);
  EXPECT_TRUE(state.leads(at_ms(999)));
  EXPECT_FALSE(state.leads(at_ms(1000)));
  EXPECT_TRUE(state.holds_key());
  EXPECT_EQ(state.guard().leader_created, 7);
  EXPECT_EQ(state.guard().table_modified, 3);
  state.leader_is("other", 9, 9);
  EXPECT_FALSE(state.leads(at_ms(0)));
  EXPECT_FALSE(state.may_campaign(at_ms(0)));
}

TEST(SharedTable, OlderRevisionsAreIgnored) {
  SharedTable state("me");
  EXPECT_TRUE(state.table_is(2, 8, 8));
  EXPECT_FALSE(state.table_is(2, 6, 6));
  EXPECT_FALSE(state.table_is(2, 8, 8)) << "the same again";
  EXPECT_FALSE(state.has_stale_table(2, 8, 9)) << "the same, seen later";
  EXPECT_TRUE(state.has_stale_table(3, 8, 9)) << "of another store";
  EXPECT_FALSE(state.has_stale_table(2, 7, 7)) << "late";
  EXPECT_TRUE(state.has_stale_table(2, 9, 9));
  EXPECT_TRUE(state.table_is(10, 10, 10));
  EXPECT_EQ(state.guard().table_modified, 10);
  state.leader_is("b", 9, 9);
  state.leader_is("a", 4, 8);
  EXPECT_EQ(state.leader(), "b");
}

TEST(SharedTable, StoreBegunAnewCountsFromTheStart) {
  SharedTable state("me");
  state.leader_is("b", 90, 90);
  state.table_is(80, 80, 90);
  EXPECT_FALSE(state.begun_anew(91, 90));
  EXPECT_FALSE(state.begun_anew(89, 85)) << "a late answer: nobody knew more when it was asked for";
  EXPECT_EQ(state.leader(), "b");
  EXPECT_TRUE(state.begun_anew(3, 90));
  EXPECT_FALSE(state.known());
  state.leader_is("", 0, 3);
  EXPECT_FALSE(state.table_is(0, 0, 3)) << "there is none to go by";
  state.lease_holds_until(at_ms(1000));
  EXPECT_TRUE(state.may_campaign(at_ms(0)));
  EXPECT_EQ(state.guard().table_modified, 0);
}

// --- routers that share a table ---

class SharedRouters : public ::testing::Test {
 protected:
  static RouterOptions options(int name) {
    RouterOptions router;
    router.shared_table = true;
    router.name = hash_bytes("gateway " + std::to_string(name));
    router.affinity.gateways = 2;
    return router;
  }
  static void ask(Router& router, int set, int count, TimePoint now) {
    for (int i = 0; i < count; ++i) serve_at(router, key(set, -1), 0, now);
  }
  static bool may_plan(const Router& router, TimePoint now) {
    return router.planning().gateways().may_plan(router.planning().announcement(), now);
  }
  // Exchanges every gateway's loads with every other.
  void tell(TimePoint now) {
    for (Router* from : {&a_, &b_}) {
      from->plan(now);
      for (Router* to : {&a_, &b_}) {
        const Status told =
            to->planning().adopt_loads_message(from->options().name, from->planning().loads_message(), now);
        EXPECT_TRUE(told.ok()) << told;
      }
    }
  }

  std::shared_ptr<const ClusterView> view_ = cluster(4);
  Router a_ = router_over(view_, options(1)), b_ = router_over(view_, options(2));
};

TEST_F(SharedRouters, NoRouterMakesATableOfItsOwn) {
  ask(a_, 1, 10, at_ms(0));
  for (int tick = 0; tick < 4; ++tick) tell(at_ms(4000 * tick));
  EXPECT_EQ(a_.table()->epoch(), 0u);
  EXPECT_EQ(b_.table()->epoch(), 0u);
}

TEST_F(SharedRouters, DraftIsPlannedFromTheLoadsOfAll) {
  // Each alone sees one set; in the sum, one is twice as heavy.
  ask(a_, 1, 10, at_ms(0));
  ask(b_, 2, 20, at_ms(0));
  tell(at_ms(4000));
  const std::string draft = a_.planning().draft_table(at_ms(4000), false);
  ASSERT_FALSE(draft.empty());
  EXPECT_EQ(a_.table()->epoch(), 0u) << "a draft counts once it is written";
  const auto plan = decode_plan(draft, *view_);
  ASSERT_TRUE(plan.ok());
  std::map<Hash128, double> work;
  for (const SetLoad& load : plan->loads.sets) work[load.set] = load.work;
  ASSERT_EQ(work.size(), 2u);
  EXPECT_NEAR(work[numbered_set(2)] / work[numbered_set(1)], 2, 0.2);
  EXPECT_NE(plan->table->find(numbered_set(1), "demo"), nullptr);
  EXPECT_NE(plan->table->find(numbered_set(2), "demo"), nullptr);
}

TEST_F(SharedRouters, AllRoutersUseTheWrittenTableAndThePlannerContinuesFromIt) {
  ask(a_, 1, 10, at_ms(0));
  ask(b_, 2, 20, at_ms(0));
  tell(at_ms(4000));
  const std::string first = a_.planning().draft_table(at_ms(4000), false);
  for (Router* router : {&a_, &b_}) ASSERT_TRUE(router->planning().adopt_table(first).ok());
  EXPECT_EQ(a_.planning().version(), b_.planning().version());
  EXPECT_EQ(a_.table()->epoch(), 1u);
  EXPECT_EQ(a_.planning().draft_table(at_ms(4000), true), "") << "nothing is to change";
  // Another gateway plans: from the same table on, in the next epoch.
  ask(a_, 3, 40, at_ms(5000));
  tell(at_ms(8000));
  const std::string second = b_.planning().draft_table(at_ms(8000), true);
  ASSERT_FALSE(second.empty());
  for (Router* router : {&a_, &b_}) ASSERT_TRUE(router->planning().adopt_table(second).ok());
  EXPECT_EQ(a_.table()->epoch(), 2u);
  EXPECT_EQ(a_.planning().version().planner, b_.options().name);
  EXPECT_EQ(*a_.table()->find(numbered_set(1), "demo"), *b_.table()->find(numbered_set(1), "demo"));
}

TEST_F(SharedRouters, LostTableIsWrittenAgain) {
  ask(a_, 1, 10, at_ms(0));
  tell(at_ms(4000));
  const std::string first = a_.planning().draft_table(at_ms(4000), false);
  for (Router* router : {&a_, &b_}) ASSERT_TRUE(router->planning().adopt_table(first).ok());
  EXPECT_EQ(b_.planning().draft_table(at_ms(4000), false), first);
}

TEST_F(SharedRouters, RouterWithHalfTheNodesOrAnOlderTableDoesNotPlan) {
  EXPECT_TRUE(may_plan(b_, at_ms(0)));
  ask(a_, 1, 10, at_ms(0));
  tell(at_ms(4000));
  EXPECT_TRUE(may_plan(b_, at_ms(4000)));
  auto half = with_state(*view_, 0, NodeState::kDead);
  half = with_state(*half, 1, NodeState::kDead);
  b_.update_cluster(half);
  EXPECT_FALSE(may_plan(b_, at_ms(4000)));
  EXPECT_TRUE(may_plan(a_, at_ms(4000)));
  b_.update_cluster(view_);
  EXPECT_TRUE(may_plan(b_, at_ms(4000)));
  ASSERT_TRUE(a_.planning().adopt_table(a_.planning().draft_table(at_ms(4000), false)).ok());
  tell(at_ms(8000));
  EXPECT_FALSE(may_plan(b_, at_ms(8000)));
  EXPECT_TRUE(may_plan(b_, at_ms(8000) + Gateways::kSilence + std::chrono::seconds(1)))
      << "the other is gone";
}

TEST_F(SharedRouters, RouterWithoutNodesPlansNothingAway) {
  ask(a_, 1, 10, at_ms(0));
  tell(at_ms(4000));
  ASSERT_TRUE(a_.planning().adopt_table(a_.planning().draft_table(at_ms(4000), false)).ok());
  auto nobody = view_;
  for (NodeIndex n = 0; n < 4; ++n) nobody = with_state(*nobody, n, NodeState::kDead);
  a_.update_cluster(nobody);
  EXPECT_EQ(a_.planning().draft_table(at_ms(8000), true), "");
}

// etcd takes 1.5 MiB: the lightest sets are left out.
TEST_F(SharedRouters, DraftFitsTheStoresLimit) {
  RouterOptions large = options(1);
  large.memory.sets_max = 60'000;
  Router router = router_over(view_, large);
  SetLoads loads;
  for (int i = 0; i < 16'000; ++i) loads.sets.push_back({numbered_set(i), 1.0 + i, 100, "demo"});
  for (int gateway = 0; gateway < 3; ++gateway) {
    for (SetLoad& load : loads.sets) load.set = hash_bytes(load.set.hex() + std::to_string(gateway));
    const Status told = router.planning().adopt_sample(hash_bytes("g" + std::to_string(gateway)),
                                                       encode_set_loads(loads), at_ms(0));
    ASSERT_TRUE(told.ok());
  }
  const std::string draft = router.planning().draft_table(at_ms(0), false);
  EXPECT_LT(draft.size(), 1'500'000u);
  const auto plan = decode_plan(draft, *view_);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->loads.sets.size(), 30'000u);
  // 3 × 10,000 of 3 × 16,000: the heaviest of each.
  for (const SetLoad& load : plan->loads.sets) EXPECT_GE(load.work, 5'999);
}

TEST_F(SharedRouters, MalformedLoadsAreRefused) {
  const Hash128 other = hash_bytes("other");
  const std::string good = b_.planning().loads_message();
  EXPECT_TRUE(a_.planning().adopt_loads_message(other, good, at_ms(0)).ok());
  for (const size_t cut : {size_t{0}, size_t{3}, kNewsBytes, good.size() - 1})
    EXPECT_FALSE(a_.planning().adopt_loads_message(other, good.substr(0, cut), at_ms(0)).ok()) << cut;
}

}  // namespace
}  // namespace troupe::route
