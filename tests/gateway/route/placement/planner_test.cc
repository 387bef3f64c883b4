#include "gateway/route/placement/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/core/random.h"
#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace planner_test {

using testing_cluster::at_ms;
using testing_cluster::cluster;
using testing_cluster::numbered_set;
using testing_cluster::with_state;

// Set i has load 1 / (i + 1)^z.
SetLoads zipf(int sets, double z, int64_t tokens = 1000) {
  SetLoads loads;
  loads.epoch = 1;
  for (int i = 0; i < sets; ++i)
    loads.sets.push_back(SetLoad{numbered_set(i), 1 / std::pow(i + 1, z), tokens, "demo"});
  return loads;
}

// Planned load over the mean, by node.
std::vector<double> planned(const SetTable& table, const SetLoads& loads, size_t nodes) {
  std::vector<double> on(nodes, 0);
  double total = 0;
  for (const SetLoad& load : loads.sets) {
    total += load.work;
    const Homes* homes = table.find(load.set, "demo");
    if (homes == nullptr) continue;
    for (const NodeIndex n : homes->nodes()) on[n] += load.work / static_cast<double>(homes->size());
  }
  for (double& load : on) load *= static_cast<double>(nodes) / total;
  return on;
}

// The share of all load whose homes changed: of each set the part of its new copies.
double moved_load(const SetTable& before, const SetTable& after, const SetLoads& loads) {
  double moved = 0, total = 0;
  for (const SetLoad& load : loads.sets) {
    total += load.work;
    const Homes* old = before.find(load.set, "demo");
    const Homes* now = after.find(load.set, "demo");
    if (now == nullptr) continue;
    for (const NodeIndex n : now->nodes()) {
      if (old == nullptr || !old->contains(n)) moved += load.work / static_cast<double>(now->size());
    }
  }
  return moved / total;
}

std::shared_ptr<const ClusterView> with_failing(const ClusterView& view,
                                                const std::vector<NodeIndex>& failing) {
  std::vector<NodeView> all(view.nodes().begin(), view.nodes().end());
  for (const NodeIndex n : failing) {
    all[n].failing = true;
    all[n].state = NodeState::kSuspect;
  }
  return std::make_shared<ClusterView>(view.epoch() + 1, std::move(all));
}

TEST(Planner, NodeThatOnlyFailsIsHomeToNoSet) {
  for (const Mode mode : {Mode::kPlan, Mode::kStrict}) {
    Planner planner({}, mode);
    const auto view = cluster(4);
    const SetLoads loads = zipf(40, 0.9);
    planner.plan({*view, {}}, loads);
    const auto ill = with_failing(*view, {2});
    EXPECT_NE(ill->memberships(), view->memberships()) << "its sets are to move at once";
    for (const auto& table : {planner.replace_gone({*ill, {}}), planner.plan({*ill, {}}, loads)}) {
      for (const auto& [set, homes] : table->sets()) EXPECT_FALSE(homes.contains(2));
    }
    EXPECT_EQ(ill->nodes_for("demo").size(), 4u) << "it may be asked";
    // If all nodes fail, none is excluded.
    const auto all_ill = with_failing(*view, {0, 1, 2, 3});
    size_t homes_there = 0;
    for (const auto& [set, homes] : planner.plan({*all_ill, {}}, loads)->sets()) homes_there += homes.size();
    EXPECT_GT(homes_there, 0u);
  }
}

TEST(Planner, GivesCopiesInProportionToLoadAndAWarmSecondToHotSets) {
  Planner planner({}, Mode::kPlan);
  const auto view = cluster(10);
  SetLoads loads;
  for (const double work : {35.0, 6.0, 4.0}) {
    loads.sets.push_back(SetLoad{numbered_set(static_cast<int>(loads.sets.size())), work, 1000, "demo"});
  }
  for (int i = 3; i < 58; ++i) loads.sets.push_back(SetLoad{numbered_set(i), 1, 1000, "demo"});
  const auto table = planner.plan({*view, {}}, loads);
  EXPECT_EQ(table->find(numbered_set(0), "demo")->size(), 4u) << "35 % of ten nodes, rounded up";
  EXPECT_EQ(table->find(numbered_set(1), "demo")->size(), 2u) << "more than half a node";
  EXPECT_EQ(table->find(numbered_set(2), "demo")->size(), 1u);
  for (const double load : planned(*table, loads, 10)) EXPECT_NEAR(load, 1, 0.15);
}

TEST(Planner, PlansEvenlyAndMovesNothingWhileLoadsStay) {
  for (const double z : {0.0, 0.9, 1.1}) {
    Planner planner({}, Mode::kPlan);
    const auto view = cluster(16);
    const SetLoads loads = zipf(2000, z);
    const auto first = planner.plan({*view, {}}, loads);
    for (const double load : planned(*first, loads, 16)) {
      EXPECT_LT(load, 1.11) << z;
      EXPECT_GT(load, 0.5) << z;
    }
    EXPECT_EQ(planner.plan({*view, {}}, loads).get(), first.get());
    EXPECT_EQ(first->epoch(), 1u);
  }
}

TEST(Planner, CopiesShrinkOnlyWhenClearlyTooMany) {
  Planner planner({}, Mode::kPlan);
  const auto view = cluster(10);
  const auto with_share = [](double share) {
    SetLoads loads;
    loads.sets.push_back(SetLoad{numbered_set(0), share, 1000, "demo"});
    for (int i = 1; i < 100; ++i)
      loads.sets.push_back(SetLoad{numbered_set(i), (1 - share) / 99, 1000, "demo"});
    return loads;
  };
  const auto copies = [&](double share) {
    return planner.plan({*view, {}}, with_share(share))->find(numbered_set(0), "demo")->size();
  };
  EXPECT_EQ(copies(0.31), 4u);
  EXPECT_EQ(copies(0.29), 4u) << "a quarter more would need them";
  EXPECT_EQ(copies(0.20), 2u);
  EXPECT_EQ(copies(0.24), 3u) << "growth waits for nothing";
}

TEST(Planner, DeadNodesAreReplacedAtOnceAndNoOtherHomeMoves) {
  Planner planner({}, Mode::kPlan);
  const auto view = cluster(12);
  const SetLoads loads = zipf(500, 0.9);
  const auto before = planner.plan({*view, {}}, loads);
  const auto dead = with_state(*view, 5, NodeState::kDead);
  const auto after = planner.replace_gone({*dead, {}});
  for (const auto& [set, homes] : after->sets()) {
    const Homes* old = before->find(set, "demo");
    EXPECT_EQ(homes.size(), old->size());
    EXPECT_FALSE(homes.contains(5));
    for (const NodeIndex n : old->nodes()) {
      EXPECT_TRUE(n == 5 || homes.contains(n)) << "a survivor lost a set";
    }
  }
  EXPECT_NEAR(moved_load(*before, *after, loads), 1.0 / 12, 0.02);
}

TEST(Planner, JoinMovesTwoPercentATickUntilTheNewNodesAreInUse) {
  Planner planner({}, Mode::kPlan);
  const auto small = cluster(8);
  const SetLoads loads = zipf(2000, 0.9);
  auto before = planner.plan({*small, {}}, loads);
  const auto large = cluster(12);
  planner.replace_gone({*large, {}});
  EXPECT_EQ(planner.table()->sets(), before->sets()) << "a join waits for the tick";
  int ticks = 0;
  for (; ticks < 60; ++ticks) {
    const auto after = planner.plan({*large, {}}, loads);
    if (after.get() == before.get()) break;
    // Growth onto the larger fleet is free of the budget: shares of it are larger.
    EXPECT_LE(moved_load(*before, *after, loads), ticks > 0 ? 0.0201 : 0.2) << ticks;
    before = after;
  }
  EXPECT_GT(ticks, 8);
  EXPECT_LT(ticks, 60);
  for (const double load : planned(*before, loads, 12)) {
    EXPECT_LT(load, 1.11);
    EXPECT_GT(load, 0.5);
  }
}

TEST(Planner, HomesStayWithinTheKvBudget) {
  PlannerOptions options;
  options.kv_share = 0.5;
  Planner planner(options, Mode::kPlan);
  const auto view = cluster(4);
  const std::vector<int64_t> kv{40'000, 40'000, 4'000, 40'000};
  const auto table = planner.plan({*view, kv}, zipf(200, 0.5));
  std::vector<int64_t> held(4, 0);
  for (const auto& [set, homes] : table->sets()) {
    for (const NodeIndex n : homes.nodes()) held[n] += 1000;
  }
  for (size_t n = 0; n < 4; ++n) EXPECT_LE(held[n], kv[n] / 2) << n;
  EXPECT_NE(table->find(numbered_set(0), "demo"), nullptr) << "the hottest are at home first";
  EXPECT_EQ(table->find(numbered_set(199), "demo"), nullptr) << "the coldest have no room";
}

TEST(Planner, SameLoadsGiveTheSameTableInAnyOrder) {
  const auto view = cluster(16, std::vector<double>{1, 2, 3});
  SetLoads loads = zipf(300, 0.8);
  Planner a({}, Mode::kPlan), b({}, Mode::kPlan);
  const auto one = a.plan({*view, {}}, loads);
  std::reverse(loads.sets.begin(), loads.sets.end());
  EXPECT_EQ(one->sets(), b.plan({*view, {}}, loads)->sets());
}

TEST(Planner, HomesServeTheModelOfTheirSets) {
  auto nodes = testing_cluster::nodes(4);
  nodes[0].models = nodes[1].models = {"small"};
  const ClusterView view(1, nodes);
  Planner planner({}, Mode::kPlan);
  const auto table = planner.plan({view, {}}, zipf(50, 0.5));
  for (const auto& [set, homes] : table->sets()) {
    for (const NodeIndex n : homes.nodes()) EXPECT_GE(n, 2u);
  }
}

TEST(Planner, StrictNeverGivesANodeMoreSetsThanItsBound) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    PlannerOptions options;
    options.strict_sets = 1 + random.below(20);
    options.max_sets_per_node = 1 + random.below(3);
    options.max_nodes_per_set = random.below(2) * 3;
    Planner planner(options, Mode::kStrict);
    auto view = cluster(1 + random.below(12));
    for (int step = 0; step < 40; ++step) {
      if (random.below(3) == 0) {
        const auto node = random.below(static_cast<uint32_t>(view->size()));
        view = with_state(*view, node, random.below(2) == 0 ? NodeState::kDead : NodeState::kAlive);
        planner.replace_gone({*view, {}});
      } else {
        planner.plan({*view, {}}, zipf(static_cast<int>(random.below(100)), 0.1 * random.below(15)));
      }
      std::map<NodeIndex, size_t> held;
      for (const auto& [set, homes] : planner.table()->sets()) {
        ASSERT_TRUE(options.max_nodes_per_set == 0 || homes.size() <= options.max_nodes_per_set);
        for (const NodeIndex n : homes.nodes()) {
          held[n] += 1;
          ASSERT_TRUE(view->routable(n)) << "seed " << seed << ": a dead node is home";
        }
      }
      for (const auto& [node, count] : held) ASSERT_LE(count, options.max_sets_per_node) << "seed " << seed;
      // Every persona has a home while any node is up: more sets than places share them.
      for (int set = 0; set < 20; ++set) {
        const Homes* homes = planner.table()->find(numbered_set(set), "demo");
        ASSERT_EQ(homes != nullptr && homes->size() > 0, view->routable_count() > 0) << "seed " << seed;
      }
    }
  }
}

TEST(Planner, StrictSetsStayWhereTheyAreWhileLoadsWaver) {
  Planner planner({}, Mode::kStrict);
  const auto view = cluster(16);
  SetLoads loads = zipf(2000, 0.9);
  planner.plan({*view, {}}, loads);
  const auto first = planner.plan({*view, {}}, loads);
  Random random(5);
  for (int tick = 0; tick < 30; ++tick) {
    SetLoads wavering = loads;
    for (SetLoad& load : wavering.sets) load.work *= 0.8 + 0.4 * random.unit();
    planner.plan({*view, {}}, wavering);
  }
  EXPECT_LE(planner.table()->epoch(), first->epoch() + 1) << "a set that moves is computed anew";
  size_t given = 0;
  for (const auto& [set, homes] : planner.table()->sets()) given += homes.size();
  EXPECT_EQ(given, 32u) << "all places are given out";
}

TEST(Planner, LargeFleetIsPlannedWithinBounds) {
  Planner planner({}, Mode::kPlan);
  const auto view = cluster(1024);
  const SetLoads loads = zipf(2000, 0.9);
  const auto table = planner.plan({*view, {}}, loads);
  for (const double load : planned(*table, loads, 1024)) EXPECT_LT(load, 1.6);
}

TEST(Rendezvous, GivesSetsInProportionToWeight) {
  const auto view = cluster(3, {1.0, 2.0, 5.0});
  std::vector<double> got(3, 0);
  constexpr int kSets = 40'000;
  for (int s = 0; s < kSets; ++s) got[rendezvous_best(numbered_set(s), *view, view->nodes_for("demo"))] += 1;
  double chi = 0;
  const std::vector<double> share{1.0 / 8, 2.0 / 8, 5.0 / 8};
  for (size_t n = 0; n < 3; ++n) chi += std::pow(got[n] - share[n] * kSets, 2) / (share[n] * kSets);
  EXPECT_LT(chi, 13.8);  // 2 degrees of freedom, once in 1,000; the hash is fixed
}

TEST(Rendezvous, SpreadsEvenlyAndAJoinTakesOnlyWhatItWins) {
  const auto before = cluster(12), after = cluster(13);
  std::vector<double> got(12, 0);
  int moved = 0;
  constexpr int kSets = 24'000;
  for (int s = 0; s < kSets; ++s) {
    const NodeIndex old = rendezvous_best(numbered_set(s), *before, before->nodes_for("demo"));
    const NodeIndex now = rendezvous_best(numbered_set(s), *after, after->nodes_for("demo"));
    got[old] += 1;
    if (old == now) continue;
    moved += 1;
    EXPECT_EQ(now, 12u) << "a set moved between old nodes";
  }
  double chi = 0;
  for (const double g : got) chi += std::pow(g - kSets / 12.0, 2) / (kSets / 12.0);
  EXPECT_LT(chi, 31.3);  // 11 degrees of freedom, once in 1,000
  EXPECT_NEAR(moved / double{kSets}, 1.0 / 13, 0.01);
}

TEST(SetStats, SharesDecayAndForgottenSetsAreBounded) {
  SetStats book(10, std::chrono::seconds(15), std::chrono::seconds(2));
  for (int i = 0; i < 100; ++i) book.note(numbered_set(1), "demo", 100, at_ms(i));
  EXPECT_NEAR(book.share(numbered_set(1)), 1, 1e-9);
  for (int i = 0; i < 100; ++i) book.note(numbered_set(2), "demo", 100, at_ms(30'000 + i));
  EXPECT_NEAR(book.share(numbered_set(1)), 0.2, 0.02) << "two half lives later: a quarter of the other's";
  for (int i = 0; i < 1000; ++i) book.note(numbered_set(i), "demo", 1, at_ms(31'000));
  EXPECT_EQ(book.size(), 10u);
  for (int hour = 1; hour < 30; ++hour) book.note(numbered_set(5), "demo", 10, at_ms(hour * 3'600'000LL));
  EXPECT_NEAR(book.share(numbered_set(5)), 1, 1e-6);
}

TEST(SetStats, WorkIsCorrectedAndNeverNegative) {
  SetStats book(10, std::chrono::seconds(15), std::chrono::seconds(2));
  book.note(numbered_set(1), "demo", 300, at_ms(0));
  book.note(numbered_set(2), "demo", 300, at_ms(0));
  book.correct(numbered_set(1), -200, at_ms(10));
  EXPECT_NEAR(book.share(numbered_set(1)), 0.25, 1e-9);
  book.correct(numbered_set(2), 600, at_ms(10));
  EXPECT_NEAR(book.share(numbered_set(2)), 0.9, 1e-9);
  book.correct(numbered_set(1), -1000, at_ms(10));
  EXPECT_NEAR(book.share(numbered_set(2)), 1, 1e-9);
  book.correct(numbered_set(3), 1000, at_ms(10));
  EXPECT_EQ(book.size(), 2u) << "not known";
}

TEST(SetLoadMerger, SumsWorkersCountersAcrossRestarts) {
  SetLoadMerger merger(std::chrono::seconds(20), 100);
  const auto report = [&](uint32_t worker, uint64_t epoch, int64_t total) {
    const SetLoadMerger::Counter counter{numbered_set(1), total, 900};
    merger.report(worker, epoch, "demo", {&counter, 1});
  };
  report(0, 1, 100);
  report(1, 1, 50);
  SetLoads loads = merger.take(at_ms(0));
  ASSERT_EQ(loads.sets.size(), 1u);
  EXPECT_EQ(loads.epoch, 1u);
  EXPECT_NEAR(loads.sets[0].work, 150, 1e-9);
  EXPECT_EQ(loads.sets[0].tokens, 900);
  report(0, 1, 130);
  report(1, 2, 20);  // its counter restarted
  loads = merger.take(at_ms(20'000));
  EXPECT_EQ(loads.epoch, 2u);
  EXPECT_NEAR(loads.sets[0].work, 75 + 30 + 20, 1e-9);
}

}  // namespace planner_test
}  // namespace troupe::route
