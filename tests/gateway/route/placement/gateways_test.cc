// One table for several gateways: the planner's election, the table's encoding, and its adoption.

#include "gateway/route/placement/gateways.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gateway/route/placement/table_codec.h"
#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace gateways_test {

using namespace testing_cluster;

GatewayAnnouncement announcement_of(uint64_t name, uint32_t nodes = 4, TableVersion table = {}) {
  return GatewayAnnouncement{Hash128{0, name}, table, nodes, 0};
}

SetLoads loads_of(int sets, double z = 0.5) {
  SetLoads loads;
  loads.epoch = 1;
  for (int i = 0; i < sets; ++i)
    loads.sets.push_back(SetLoad{numbered_set(i), 1 / std::pow(i + 1, z), 1000, "demo"});
  return loads;
}

TEST(Gateways, SmallestNamePlansUntilATableExists) {
  Gateways gateways;
  const GatewayAnnouncement own = announcement_of(5);
  EXPECT_TRUE(gateways.plans(own, at_ms(0))) << "alone";
  gateways.observe(own, announcement_of(7), at_ms(0));
  EXPECT_TRUE(gateways.plans(own, at_ms(1)));
  gateways.observe(own, announcement_of(3), at_ms(1000));
  EXPECT_FALSE(gateways.plans(own, at_ms(1001)));
  EXPECT_TRUE(gateways.plans(own, at_ms(4001))) << "3 is silent";
  // The maker of the table continues to plan.
  EXPECT_TRUE(gateways.plans(announcement_of(5, 4, {9, {0, 5}}), at_ms(1001)));
  EXPECT_FALSE(gateways.plans(announcement_of(1, 4, {9, {0, 7}}), at_ms(1001)));
}

TEST(Gateways, SilentGatewaysDoNotCount) {
  Gateways gateways;
  const GatewayAnnouncement own = announcement_of(5);
  const auto place = [&](int64_t ms) { return gateways.place(own.name, at_ms(ms)); };
  EXPECT_EQ(place(0), (GatewayShard{0, 1}));
  gateways.observe(own, own, at_ms(0));
  gateways.observe(own, announcement_of(7), at_ms(0));
  gateways.observe(own, announcement_of(8), at_ms(1000));
  gateways.observe(own, announcement_of(3), at_ms(500));
  EXPECT_EQ(place(1000), (GatewayShard{1, 4})) << "3 stands before it";
  EXPECT_EQ(place(3250), (GatewayShard{1, 3}));
  EXPECT_EQ(place(3750), (GatewayShard{0, 2}));
  EXPECT_EQ(place(4500), (GatewayShard{0, 1}));
}

TEST(Gateways, GatewayWithoutLoadsOrHalfTheNodesDoesNotPlan) {
  Gateways gateways;
  const GatewayAnnouncement own = announcement_of(5, 10);
  gateways.observe(own, announcement_of(3, 0), at_ms(0));
  EXPECT_TRUE(gateways.plans(own, at_ms(1))) << "3 has nothing to plan from";
  gateways.observe(own, announcement_of(3, 5, {1, {0, 3}}), at_ms(2));
  EXPECT_TRUE(gateways.plans(announcement_of(5, 10, {1, {0, 3}}), at_ms(3)))
      << "3 made it, and sees too little now";
  gateways.observe(own, announcement_of(3, 6), at_ms(4));
  EXPECT_FALSE(gateways.plans(own, at_ms(5)));
  EXPECT_FALSE(gateways.plans(announcement_of(1, 3), at_ms(5))) << "oneself, too";
  EXPECT_FALSE(gateways.plans(announcement_of(1, 0), at_ms(5)));
}

TEST(Gateways, OwnNewsAndOtherKindsAreIgnored) {
  Gateways gateways;
  const GatewayAnnouncement own = announcement_of(5);
  GatewayAnnouncement other = announcement_of(3);
  other.strict_sets = 8;
  gateways.observe(own, other, at_ms(0));
  gateways.observe(own, own, at_ms(0));
  EXPECT_TRUE(gateways.plans(own, at_ms(1)));
  const GatewayAnnouncement ahead = announcement_of(5, 4, {7, {0, 5}});
  EXPECT_FALSE(gateways.has_stale_table(other.name, ahead));
  EXPECT_FALSE(gateways.has_stale_table(own.name, ahead));
  EXPECT_EQ(gateways.others().size(), 1u) << "who is set otherwise can be told";
}

TEST(Gateways, StrictGatewaysWithAnotherNumberCount) {
  Gateways gateways;
  GatewayAnnouncement own = announcement_of(5), other = announcement_of(3);
  own.strict_sets = 16;
  other.strict_sets = 8;
  gateways.observe(own, other, at_ms(0));
  EXPECT_FALSE(gateways.plans(own, at_ms(1)));
  own.table = {7, {0, 5}};
  EXPECT_TRUE(gateways.has_stale_table(other.name, own));
}

TEST(Gateways, FollowedGatewaysAreBounded) {
  Gateways gateways;
  const GatewayAnnouncement own = announcement_of(1);
  for (uint64_t name = 2; name < 5000; ++name) gateways.observe(own, announcement_of(name), at_ms(0));
  const GatewayAnnouncement ahead = announcement_of(1, 4, {1, {}});
  EXPECT_FALSE(gateways.has_stale_table(Hash128{0, 4000}, ahead)) << "too many to be followed";
  EXPECT_TRUE(gateways.has_stale_table(Hash128{0, 2}, ahead));
  gateways.observe(own, announcement_of(6000), at_ms(5000));
  EXPECT_TRUE(gateways.has_stale_table(Hash128{0, 6000}, ahead)) << "the silent make room";
}

TEST(TableMessage, CarriesTheWholePlan) {
  auto all = testing_cluster::nodes(6);
  all[0].models = all[1].models = {"other"};
  const ClusterView view(1, all);
  SetLoads loads = loads_of(50);
  for (int i = 0; i < 10; ++i) loads.sets.push_back(SetLoad{numbered_set(100 + i), 0.5, 70, "other"});
  Planner planner({}, Mode::kPlan, Hash128{1, 2});
  planner.plan({view, {}}, loads);
  const Plan& sent = planner.common();
  const auto got = decode_plan(encode_plan(sent, view), view);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->table->sets(), sent.table->sets());
  EXPECT_EQ(got->table->version(), (TableVersion{1, {1, 2}}));
  EXPECT_EQ(got->known, sent.known);
  EXPECT_FALSE(got->partial);
  ASSERT_EQ(got->loads.sets.size(), loads.sets.size());
  for (size_t i = 0; i < loads.sets.size(); ++i) {
    EXPECT_EQ(got->loads.sets[i].set, loads.sets[i].set);
    EXPECT_EQ(got->loads.sets[i].work, loads.sets[i].work);
    EXPECT_EQ(got->loads.sets[i].tokens, loads.sets[i].tokens);
    EXPECT_EQ(got->loads.sets[i].model, loads.sets[i].model);
  }
}

TEST(TableMessage, NodesTravelByName) {
  const auto there = cluster(4);
  auto reordered = testing_cluster::nodes(4);
  std::swap(reordered[0], reordered[3]);
  reordered.pop_back();  // node 0 there is unknown here
  const ClusterView here(1, reordered);
  Planner planner({}, Mode::kPlan);
  planner.plan({*there, {}}, loads_of(80));
  const auto got = decode_plan(encode_plan(planner.common(), *there), here);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->partial);
  for (const auto& [set, homes] : got->table->sets()) {
    const auto sent = planner.table()->sets().find(set)->second;
    for (const NodeIndex n : homes.nodes()) EXPECT_TRUE(sent.contains(n == 0 ? 3 : n));
  }
  EXPECT_LT(got->table->sets().size(), 80u);
  EXPECT_EQ(got->loads.sets.size(), 80u);
}

TEST(TableMessage, MalformedFieldIsRefusedAndNamed) {
  const auto view = cluster(3);
  Planner planner({}, Mode::kPlan);
  planner.plan({*view, {}}, loads_of(4));
  const std::string good = encode_plan(planner.common(), *view);
  const auto why = [&](const std::string& message) {
    return std::string(decode_plan(message, *view).status().message());
  };
  for (size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_FALSE(decode_plan(good.substr(0, cut), *view).ok()) << cut;
  EXPECT_NE(why(good + "x").find("more bytes"), std::string::npos);

  // Byte by byte: magic, version, loads, strict, joining; one model of 4 bytes; three nodes; then the sets.
  const size_t epoch_at = 4, nodes_at = 4 + 24 + 8 + 4 + 4 + 4 + 4 + 4, sets_at = nodes_at + 4 + 3 * 12 + 4;
  const auto with = [&](size_t offset, auto value) {
    std::string message = good;
    std::memcpy(message.data() + offset, &value, sizeof value);
    return why(message);
  };
  EXPECT_NE(with(epoch_at, uint64_t{0}).find("table.epoch"), std::string::npos);
  EXPECT_NE(with(epoch_at, ~uint64_t{0}).find("table.epoch"), std::string::npos);
  uint64_t second = 0;
  std::memcpy(&second, good.data() + nodes_at + 4 + 12, sizeof second);
  EXPECT_NE(with(nodes_at + 4, second).find("table.nodes[1]: is there twice"), std::string::npos);
  EXPECT_NE(with(nodes_at, uint32_t{1 << 30}).find("cut off"), std::string::npos);
  EXPECT_NE(with(sets_at + 16, -1.0).find("table.sets[0].work"), std::string::npos);
  EXPECT_NE(with(sets_at + 16, std::numeric_limits<double>::quiet_NaN()).find("table.sets[0].work"),
            std::string::npos);
  EXPECT_NE(with(sets_at + 24, int64_t{-5}).find("table.sets[0].tokens"), std::string::npos);
  EXPECT_NE(with(sets_at + 32, uint32_t{1}).find("table.sets[0].model: 1 of 1"), std::string::npos);
  EXPECT_NE(with(sets_at + 40, uint32_t{3}).find("table.sets[0].homes: node 3 of 3"), std::string::npos);
  EXPECT_NE(with(sets_at + 36, ~uint32_t{0}).find("cut off"), std::string::npos);
}

TEST(TableMessage, NewsTravel) {
  const GatewayAnnouncement announcement{{1, 2}, {77, {3, 4}}, 12, 8};
  const std::string message = encode_announcement(announcement);
  const auto got = decode_announcement(announcement.name, message);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->table, announcement.table);
  EXPECT_EQ(got->nodes, 12u);
  EXPECT_EQ(got->strict_sets, 8u);
  EXPECT_FALSE(decode_announcement(announcement.name, message + "x").ok());
  EXPECT_FALSE(decode_announcement(announcement.name, message.substr(0, 20)).ok());
  EXPECT_FALSE(decode_announcement(announcement.name, "").ok());
}

class OneTable : public ::testing::Test {
 protected:
  Router named(uint64_t name, std::shared_ptr<const ClusterView> view, Mode mode = Mode::kPlan,
               size_t strict_sets = 8) {
    RouterOptions options;
    options.planner.strict_sets = strict_sets;
    options.name = Hash128{0, name};
    options.affinity.mode = mode;
    options.affinity.gateways = 2;
    return router_over(std::move(view), options, name);
  }
  static void tell(Router& from, Router& to, TimePoint now) {
    to.planning().observe(from.planning().announcement(), now);
    if (!from.planning().has_stale_table(to.planning().announcement().name)) return;
    const Status adopted = to.planning().adopt_table(from.planning().table_message());
    EXPECT_TRUE(adopted.ok()) << adopted;
  }
  static void exchange(Router& a, Router& b, TimePoint now) {
    tell(a, b, now);
    tell(b, a, now);
    tell(a, b, now);
  }
};

// Copies that are kept for their past: the reason why side-by-side planners differed for good.
TEST_F(OneTable, GatewayThatMissedATickConverges) {
  const auto view = cluster(8);
  Router a = named(1, view), b = named(2, view);
  const SetLoads flat = loads_of(40, 0.1), steep = loads_of(40, 1.2);
  a.plan(at_ms(0), steep);
  a.plan(at_ms(4000), flat);
  b.plan(at_ms(4000), flat);
  ASSERT_NE(a.table()->sets(), b.table()->sets()) << "side by side they differ, or this test shows nothing";
  exchange(a, b, at_ms(4050));
  EXPECT_EQ(a.planning().version(), b.planning().version());
  EXPECT_EQ(a.table()->sets(), b.table()->sets());
  for (int tick = 2; tick < 6; ++tick) {
    const TimePoint now = at_ms(4000 * tick);
    const SetLoads loads = loads_of(40, 0.3 * tick);
    exchange(a, b, now);
    a.plan(now, loads);
    b.plan(now, flat);
    EXPECT_NE(a.planning().plans(), b.planning().plans());
    exchange(a, b, now);
    EXPECT_EQ(a.table()->sets(), b.table()->sets()) << tick;
  }
}

TEST_F(OneTable, FollowerReplacesGoneHomesUntilTheyReturn) {
  const auto view = cluster(6);
  Router a = named(1, view), b = named(2, view);
  a.plan(at_ms(0), loads_of(60));
  exchange(a, b, at_ms(10));
  const auto common = b.table();
  ASSERT_EQ(common->sets(), a.table()->sets());
  b.update_cluster(with_state(*view, 4, NodeState::kDead));
  ASSERT_EQ(b.table()->sets().size(), 60u);
  for (const auto& [set, homes] : b.table()->sets()) {
    EXPECT_FALSE(homes.contains(4));
    for (const NodeIndex n : common->sets().find(set)->second.nodes())
      EXPECT_TRUE(n == 4 || homes.contains(n)) << "nobody else moves";
  }
  EXPECT_EQ(b.planning().version(), a.planning().version()) << "for itself only";
  b.update_cluster(view);
  EXPECT_EQ(b.table().get(), common.get());
}

TEST_F(OneTable, NextPlannerContinuesFromTheTable) {
  const auto view = cluster(6);
  Router a = named(1, view), b = named(2, view);
  a.plan(at_ms(0), loads_of(60));
  exchange(a, b, at_ms(10));
  b.plan(at_ms(2000), loads_of(60));
  EXPECT_EQ(b.planning().version().planner, (Hash128{0, 1}));
  b.plan(at_ms(6000), loads_of(60));
  EXPECT_TRUE(b.planning().plans());
  EXPECT_EQ(b.planning().version().epoch, 1u) << "the same loads, the same table";
  b.plan(at_ms(10'000), loads_of(61));
  EXPECT_EQ(b.planning().version(), (TableVersion{2, {0, 2}}));
  for (const auto& [set, homes] : a.table()->sets())
    EXPECT_EQ(homes, b.table()->sets().find(set)->second) << "nothing moved that need not";
  exchange(a, b, at_ms(10'010));
  EXPECT_EQ(a.table()->sets(), b.table()->sets());
}

TEST_F(OneTable, NodeInTheTableBecomesHomeOnceKnown) {
  auto all = testing_cluster::nodes(4);
  Router a = named(1, cluster(4));
  all.pop_back();
  Router b = named(2, std::make_shared<ClusterView>(1, all));
  a.plan(at_ms(0), loads_of(60));
  exchange(a, b, at_ms(10));
  EXPECT_NE(b.table()->sets(), a.table()->sets());
  EXPECT_EQ(b.table()->sets().size(), 60u) << "every set has a home all the same";
  b.update_cluster(cluster(4));
  EXPECT_EQ(b.table()->sets(), a.table()->sets());
}

// The state during a change of the setting, gateway by gateway.
TEST_F(OneTable, StrictSetsFollowThePlannersNumber) {
  const auto view = cluster(6);
  Router a = named(1, view, Mode::kStrict, 8), b = named(2, view, Mode::kStrict, 5);
  a.plan(at_ms(0), loads_of(60));
  b.plan(at_ms(0), loads_of(60));
  exchange(a, b, at_ms(10));
  EXPECT_EQ(a.table()->sets(), b.table()->sets());
  EXPECT_EQ(a.table()->origin().strict_sets, b.table()->origin().strict_sets);
  ASSERT_NE(a.planning().plans(), b.planning().plans());
  Router& follower = a.planning().plans() ? b : a;
  const size_t in_force = follower.table()->origin().strict_sets;
  for (int s = 0; s < 60; ++s) {
    const Homes* homes = follower.table()->find(numbered_set(s), "demo");
    ASSERT_NE(homes, nullptr);
    const Decision decision = follower.decide(key(s, s), "demo", at_ms(20));
    for (const Candidate& candidate : decision.order.all()) EXPECT_TRUE(homes->contains(candidate.node));
  }
  follower.update_cluster(with_state(*view, 2, NodeState::kDead));
  EXPECT_EQ(follower.table()->origin().strict_sets, in_force) << "replaced, not divided anew";
  // The planner falls silent: from now on the number is the follower's own.
  follower.plan(at_ms(9000), loads_of(60));
  EXPECT_TRUE(follower.planning().plans());
  EXPECT_NE(follower.table()->origin().strict_sets, in_force);
  EXPECT_EQ(follower.table()->sets().size(), follower.table()->origin().strict_sets);
}

TEST_F(OneTable, PlannerCountsLoadsOfTheOthers) {
  const auto view = cluster(4);
  Router a = named(1, view), b = named(2, view);
  const auto serve = [](Router& router, int set, int times) {
    for (int i = 0; i < times; ++i) {
      const PrefixKey asked = key(set, i);
      const Decision decision = router.decide(asked, "demo", at_ms(i));
      InFlight sent = router.on_sent(asked, "demo", decision.order[0], at_ms(i));
      router.on_finished(asked, sent, AnswerCounts{1100, 10, 0, true}, at_ms(i));
    }
  };
  serve(a, 0, 10);
  serve(b, 1, 1000);
  a.plan(at_ms(1000));
  b.plan(at_ms(1000));
  EXPECT_EQ(a.table()->sets().size(), 1u);
  for (const auto& [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    const Status adopted = to->planning().adopt_sample(from->planning().announcement().name,
                                                       from->planning().own().message(), at_ms(1010));
    EXPECT_TRUE(adopted.ok()) << adopted;
  }
  exchange(a, b, at_ms(1020));
  a.plan(at_ms(6000));
  b.plan(at_ms(6000));
  exchange(a, b, at_ms(6010));
  for (const Router* router : {&a, &b}) {
    ASSERT_EQ(router->table()->sets().size(), 2u);
    EXPECT_EQ(router->table()->find(numbered_set(0), "demo")->size(), 1u);
    EXPECT_EQ(router->table()->find(numbered_set(1), "demo")->size(), 4u) << "nearly all of the load";
  }
  EXPECT_FALSE(a.planning().adopt_sample(Hash128{0, 2}, "TPT1", at_ms(6020)).ok());
  // A silent gateway no longer counts.
  a.plan(at_ms(60'000));
  EXPECT_EQ(a.table()->sets().size(), 1u);
}

TEST(SharedLoadsTest, LongSampleIsCutToTheHeaviest) {
  SetLoads loads;
  for (int i = 0; i < 20'000; ++i) loads.sets.push_back(SetLoad{numbered_set(i), 1.0 + i, 7, "demo"});
  const auto got = decode_set_loads(encode_set_loads(loads));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->sets.size(), 16'384u);
  for (const SetLoad& load : got->sets) EXPECT_GT(load.work, 20'000 - 16'384);
}

TEST_F(OneTable, StrictAndOtherTablesAreKeptApart) {
  const auto view = cluster(6);
  Router a = named(1, view, Mode::kStrict), b = named(2, view, Mode::kPlan);
  a.plan(at_ms(0), loads_of(60));
  exchange(a, b, at_ms(10));
  EXPECT_EQ(b.planning().version().epoch, 0u);
  EXPECT_TRUE(b.planning().adopt_table(a.planning().table_message()).ok()) << "well formed";
  EXPECT_EQ(b.planning().version().epoch, 0u);
}

TEST_F(OneTable, EpochOfTheLoadsTravels) {
  const auto view = cluster(8);
  for (const uint64_t epoch : {0u, 7u}) {
    Router a = named(1, view, Mode::kGossip), b = named(2, view, Mode::kGossip);
    SetLoads loads = loads_of(60);
    loads.epoch = epoch;
    a.plan(at_ms(0), loads);
    exchange(a, b, at_ms(10));
    EXPECT_EQ(b.table()->origin().loads_epoch, epoch);
  }
}

}  // namespace gateways_test
}  // namespace troupe::route
