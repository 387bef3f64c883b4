// The cost, rule by rule.

#include "gateway/route/policy/affinity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace affinity_test {

using namespace testing_cluster;

RouterOptions options_of(Mode mode, int64_t gateways = 1) {
  RouterOptions options;
  options.affinity.mode = mode;
  options.affinity.gateways = gateways;
  return options;
}

// Load with its full weight, though the prompts here are short.
RouterOptions full_load() {
  RouterOptions options;
  options.affinity.load_prompt_share = 100;
  return options;
}

const Candidate* at(const Decision& decision, NodeIndex node) {
  for (const Candidate& c : decision.order.all()) {
    if (c.node == node) return &c;
  }
  return nullptr;
}

TEST(Affinity, ConversationStaysOnItsNode) {
  Router router = router_over(cluster(8));
  for (int session = 0; session < 100; ++session) {
    const NodeIndex first = serve(router, key(session % 20, session), at_ms(session));
    for (int turn = 0; turn < 4; ++turn) {
      const PrefixKey next = key(session % 20, session, 1000, 1260 + 160 * turn);
      EXPECT_EQ(router.decide(next, "demo", at_ms(session)).order[0].branch, Branch::kSession);
      EXPECT_EQ(serve(router, next, at_ms(session)), first);
    }
  }
}

TEST(Affinity, NewConversationGoesToAHolderOfThePersona) {
  Router router = router_over(cluster(8));
  const NodeIndex warm = serve(router, key(3, 0), at_ms(0));
  for (int set = 10; set < 60; ++set) serve(router, key(set, 100 + set), at_ms(set));  // 3 is one of many
  const Decision decision = router.decide(key(3, 1), "demo", at_ms(100));
  EXPECT_EQ(decision.order[0].node, warm);
  EXPECT_EQ(decision.order[0].branch, Branch::kHome);
  EXPECT_EQ(decision.order[0].expect_cached, 1000 / kBlockTokens * kBlockTokens);
  EXPECT_NEAR(decision.order[0].miss, 100, 1);
}

TEST(Affinity, NothingIsResidentBeforeTheFirstToken) {
  Router router = router_over(cluster(4));
  const PrefixKey k = key(1, 7);
  InFlight sent = router.on_sent(k, "demo", to(2), at_ms(0));
  EXPECT_EQ(at(router.decide(k, "demo", at_ms(0)), 2)->expect_cached, 0);
  router.first_byte(k, sent, at_ms(1));
  EXPECT_GT(at(router.decide(k, "demo", at_ms(1)), 2)->expect_cached, 0);
}

TEST(Affinity, SessionCountsOnlyWithItsWholePersona) {
  RouterOptions options = options_of(Mode::kExact);
  Router router = router_over(cluster(2), options);
  const PrefixKey k = key(1, 7, 1000, 2000);
  const auto say = [&](NodeIndex node, int64_t set_tokens, int64_t session_tokens) {
    const ResidencyItem items[] = {{k.set, HolderKind::kSet, set_tokens},
                                   {k.session, HolderKind::kSession, session_tokens}};
    ResidencyEvent event;
    event.epoch = 1;
    event.items = items;
    EXPECT_EQ(router.residency(node, event), FeedResult::kApplied);
  };
  say(0, 1000, 1800);
  say(1, 600, 1800);
  const Decision decision = router.decide(k, "demo", at_ms(0));
  EXPECT_EQ(decision.order[0].node, 0u);
  EXPECT_EQ(decision.order[0].branch, Branch::kSession);
  EXPECT_EQ(at(decision, 0)->miss, 200);
  EXPECT_EQ(at(decision, 1)->branch, Branch::kHome);
  EXPECT_GE(at(decision, 1)->miss, 2000 - 600 - 0.95 * 400);
}

// A node with blocks of 512 holds one block of a persona of 700 tokens, and none of one of 400: still all of
// it that can be there, so the conversation counts.
TEST(Affinity, PersonaIsWholeByTheNodesBlockSize) {
  Router router = router_over(cluster(2), options_of(Mode::kExact));
  NodeReport report;
  report.block_tokens = 512;
  for (NodeIndex n = 0; n < 2; ++n) router.report(n, report, at_ms(0));
  for (const int64_t prefix : {700, 400}) {
    const PrefixKey k = key(static_cast<int>(prefix), static_cast<int>(prefix), prefix, 2000);
    const ResidencyItem items[] = {{k.set, HolderKind::kSet, prefix / 512 * 512},
                                   {k.session, HolderKind::kSession, 1536}};
    ResidencyEvent event;
    event.epoch = static_cast<uint64_t>(prefix);
    event.items = items;
    EXPECT_EQ(router.residency(0, event), FeedResult::kApplied);
    const Decision decision = router.decide(k, "demo", at_ms(0));
    EXPECT_EQ(decision.order[0].node, 0u);
    EXPECT_EQ(decision.order[0].branch, Branch::kSession);
    EXPECT_EQ(decision.order[0].miss, 2000 - 1536) << "nothing of it is lacking";
    EXPECT_EQ(decision.order[0].expect_cached, 1536);
  }
}

TEST(Affinity, CachedTokensAreFewerThanThePrompt) {
  Router router = router_over(cluster(1));
  serve_at(router, key(1, 7, 1000, 1000), 0, at_ms(0));
  EXPECT_GE(router.decide(key(1, 7, 1000, 1000), "demo", at_ms(1)).order[0].miss, 1);
}

TEST(Affinity, PendingTokensCostAtMostTheMissingTokens) {
  Router router = router_over(cluster(2));
  serve_at(router, key(1, 7, 1000, 2000), 0, at_ms(0));
  router.on_sent(key(-1, -1, 0, 30'000), "demo", to(0), at_ms(1));
  const Decision short_turn = router.decide(key(1, 7, 1000, 2150), "demo", at_ms(2));
  EXPECT_EQ(short_turn.order[0].node, 0u) << "a long prompt in the queue does not move a conversation";
  EXPECT_EQ(at(short_turn, 0)->load.pending, at(short_turn, 0)->miss);
  EXPECT_LT(at(short_turn, 0)->miss, 151);
  const Decision cold = router.decide(key(-1, -1, 0, 1500), "demo", at_ms(2));
  EXPECT_EQ(cold.order[0].node, 1u);
  EXPECT_EQ(at(cold, 0)->load.pending, 1500);
}

TEST(Affinity, PendingTokensWeighTwoFifteenths) {
  Router router = router_over(cluster(2));
  const PrefixKey queued = key(-1, -1, 0, 3000);
  router.on_sent(queued, "demo", to(0), at_ms(0));
  const Decision decision = router.decide(key(-1, -1, 0, 500), "demo", at_ms(0));
  EXPECT_NEAR(at(decision, 0)->load.pending, 2 * 3000 / 15.0, 1e-9);
  EXPECT_EQ(at(decision, 1)->load.pending, 0);
  EXPECT_EQ(decision.order[0].node, 1u);
}

// On a fleet with few known sets each has a large share: no reason to compute one again while no request
// waits.
TEST(Affinity, IdleFleetGrowsNoCopies) {
  Router router = router_over(cluster(8));
  for (int set = 0; set < 4; ++set) serve_at(router, key(set, set, 230, 240), set, at_ms(set));
  ASSERT_GT(router.decide(key(0, 9, 230, 240), "demo", at_ms(10)).order[0].expect_cached, 0);
  for (int i = 0; i < 2; ++i)
    router.on_sent(key(-1, -1, 0, 1), "demo", to(0), at_ms(11));  // node 0 is at work
  const Decision next = router.decide(key(0, 0, 230, 290), "demo", at_ms(12));
  EXPECT_EQ(next.order[0].node, 0u) << branch_name(next.order[0].branch);
}

// A few queued prefills push no conversation off its node: the purpose of the small weight.
TEST(Affinity, FewQueuedPrefillsDoNotMoveAConversation) {
  Router router = router_over(cluster(8));
  for (NodeIndex n = 0; n < 8; ++n) crowd(router, n, 60, at_ms(0));
  serve_at(router, key(1, 7, 1000, 2000), 3, at_ms(0));
  for (int i = 0; i < 3; ++i) router.on_sent(key(-1, -1, 0, 2000), "demo", to(3), at_ms(1));
  EXPECT_EQ(router.decide(key(1, 7, 1000, 2200), "demo", at_ms(2)).order[0].node, 3u);
}

TEST(Affinity, LoadIsConvexAboveTheMean) {
  Router router = router_over(cluster(4), full_load());
  for (NodeIndex n = 0; n < 4; ++n) crowd(router, n, n == 0 ? 40 : 10, at_ms(0));
  const Decision decision = router.decide(key(-1, -1, 0, 500), "demo", at_ms(0));
  const double mean = 70 / 4.0;
  const double busy = mean * mean / (mean * mean + 25);
  const auto work = [&](double requests) { return 1 + busy * (requests / mean - 1); };
  const double load = 0.5 * work(40) + 0.5 * (45 / (mean + 5));
  EXPECT_NEAR(at(decision, 0)->load.relative, 333 * (load + 3 * (load - 1) * (load - 1)), 1e-6);
  const double low = 0.5 * work(10) + 0.5 * (15 / (mean + 5));
  EXPECT_NEAR(at(decision, 1)->load.relative, 333 * low, 1e-6);
}

TEST(Affinity, NearlyFullBatchCostsSteeply) {
  Router router = router_over(cluster(2));
  NodeReport report;
  report.max_num_seqs = 100;
  for (NodeIndex n = 0; n < 2; ++n) router.report(n, report, at_ms(0));
  const auto cost = [&](int running) {
    report.running = running;
    for (NodeIndex n = 0; n < 2; ++n) router.report(n, report, at_ms(1));
    return router.decide(key(-1, -1), "demo", at_ms(1)).order[0].load.relative;
  };
  EXPECT_NEAR(cost(75) - cost(10), 0, 1e-6) << "both at the fleet's mean";
  EXPECT_NEAR(cost(95) - cost(10), 333 * 20 * 0.20, 1e-6);
}

TEST(Affinity, HotSetGrowsOntoNodesThatLackIt) {
  Router router = router_over(cluster(16));
  for (NodeIndex n = 0; n < 16; ++n) crowd(router, n, 40, at_ms(0));  // the fleet is busy
  for (int i = 0; i < 5; ++i) serve_at(router, key(1, 0), 5, at_ms(0));
  const Decision hot = router.decide(key(1, 1), "demo", at_ms(1));  // the only persona
  EXPECT_EQ(at(hot, hot.order[0].node == 5 ? hot.order[1].node : hot.order[0].node)->branch,
            Branch::kNewCopy);
  const Candidate* other = at(hot, hot.order[1].node);
  EXPECT_LT(other->miss, 1100 - 0.92 * 1000);
  // One of very many personas isn't.
  for (int set = 100; set < 400; ++set)
    serve_at(router, key(set, set), static_cast<NodeIndex>(set % 16), at_ms(2));
  const Decision cold = router.decide(key(1, 1), "demo", at_ms(3));
  EXPECT_EQ(cold.order[0].node, 5u);
  EXPECT_EQ(cold.order[1].miss, 1100);
  EXPECT_EQ(cold.order[1].branch, Branch::kLeast);
}

TEST(Affinity, FlashCrowdOfOnePersonaUsesTheWholeFleetEvenly) {
  Router router = router_over(cluster(16));
  std::map<NodeIndex, int> running;
  for (int session = 0; session < 480; ++session) {
    const PrefixKey k = key(1, session, 3000, 3100);
    const NodeIndex node = router.decide(k, "demo", at_ms(session)).order[0].node;
    InFlight sent = router.on_sent(k, "demo", to(node), at_ms(session));  // never finished
    router.first_byte(k, sent, at_ms(session));
    running[node] += 1;
  }
  EXPECT_EQ(running.size(), 16u);
  for (const auto& [node, count] : running) EXPECT_NEAR(count, 30, 12) << node;
}

TEST(Affinity, BusyFleetKeepsAffinity) {
  Router router = router_over(cluster(4));
  for (int set = 0; set < 40; ++set)
    serve_at(router, key(set, set), static_cast<NodeIndex>(set % 4), at_ms(0));
  for (NodeIndex n = 0; n < 4; ++n) crowd(router, n, 200, at_ms(1));
  for (int set = 0; set < 40; ++set) {
    const Decision decision = router.decide(key(set, set, 1000, 1300), "demo", at_ms(2));
    EXPECT_EQ(decision.order[0].node, static_cast<NodeIndex>(set % 4)) << set;
  }
}

// A card of 200 tokens counts as held, too, though it is shorter than the text that long prompts share.
TEST(Affinity, NoiseNeedsSeveralGatewaysAndNothingHeld) {
  for (const int64_t gateways : {1, 4}) {
    for (const int64_t prefix : {200, 1000}) {
      Router router = router_over(cluster(4), options_of(Mode::kGossip, gateways));
      serve_at(router, key(1, 1, prefix, prefix + 100), 0, at_ms(0));
      bool noise = false;
      for (int i = 0; i < 50; ++i) {
        const Decision decision = router.decide(key(1, 2, prefix, prefix + 100), "demo", at_ms(1));
        EXPECT_EQ(at(decision, 0)->noise, 0) << "noise on a holder costs hits";
        for (NodeIndex n = 1; n < 4; ++n) noise |= at(decision, n)->noise > 0;
      }
      EXPECT_EQ(noise, gateways > 1);
    }
  }
}

// All gateways look for new places at one moment, before any hears of the others' choices.
TEST(Affinity, StreamsOfADeadNodeSpreadOverNodesThatHoldNothing) {
  const auto crowd_at = [](bool displaced) {
    Router router = router_over(cluster(8), options_of(Mode::kGossip, 16));
    for (int i = 0; i < 50; ++i) crowd(router, 7, 1, at_ms(i));
    for (NodeIndex n = 1; n < 7; ++n) crowd(router, n, 4, at_ms(60));  // node 0 is the least loaded
    std::map<NodeIndex, int> firsts;
    for (int i = 0; i < 400; ++i) {
      PrefixKey asked = key(1000 + i, 1000 + i, 1000, 1300);
      asked.displaced = displaced;
      firsts[router.decide(asked, "demo", at_ms(100)).order[0].node] += 1;
    }
    EXPECT_EQ(firsts[7], 0) << "who is busy is spared all the same";
    return firsts[0];
  };
  const int usually = crowd_at(false), displaced = crowd_at(true);
  EXPECT_GT(usually, 200) << displaced;
  EXPECT_LT(displaced, usually / 2);
}

TEST(Affinity, TiesSpreadEvenlyInSmallAndLargeFleets) {
  for (const size_t count : {5u, 40u}) {
    Router router = router_over(cluster(count));
    std::vector<int> got(count, 0);
    const double each = 400;
    for (int i = 0; i < static_cast<int>(each) * static_cast<int>(count); ++i)
      got[router.decide(key(-1, -1), "demo", at_ms(0)).order[0].node] += 1;
    for (const int g : got) EXPECT_NEAR(g, each, count == 5 ? 80 : 160) << count;
  }
}

TEST(Affinity, NodeAtItsLimitComesAfterOthersAndASuspectLast) {
  auto all = testing_cluster::nodes(4);
  for (NodeView& node : all) node.in_flight_max = 1;
  all[3].state = NodeState::kSuspect;
  Router router = router_over(std::make_shared<ClusterView>(1, all));
  serve_at(router, key(1, 1), 1, at_ms(0));
  serve_at(router, key(1, 1), 3, at_ms(0));
  router.on_sent(key(-1, -1), "demo", to(1), at_ms(1));
  const Decision decision = router.decide(key(1, 1), "demo", at_ms(1));
  ASSERT_EQ(decision.order.size(), 4u);
  EXPECT_EQ(decision.order[2].node, 1u);
  EXPECT_TRUE(decision.order[2].overloaded);
  EXPECT_EQ(decision.order[3].node, 3u);
}

TEST(Affinity, PlanModeBelievesTheTable) {
  Router router = router_over(cluster(8), options_of(Mode::kPlan, 4));
  SetLoads loads;
  loads.epoch = 1;
  for (int set = 0; set < 40; ++set) loads.sets.push_back(SetLoad{numbered_set(set), 1.0, 1000, "demo"});
  router.plan(at_ms(0), loads);
  for (int set = 0; set < 40; ++set) {
    const Homes* homes = router.table()->find(numbered_set(set), "demo");
    ASSERT_NE(homes, nullptr);
    PrefixKey k = key(set, 100 + set);
    const Decision first = router.decide(k, "demo", at_ms(0));
    EXPECT_TRUE(homes->contains(first.order[0].node));
    EXPECT_EQ(first.order[0].branch, Branch::kHome);
    k.history_tokens = 1050;
    const Decision later = router.decide(k, "demo", at_ms(0));
    EXPECT_EQ(later.order[0].node, first.order[0].node) << "a conversation's home is its own";
    EXPECT_EQ(later.order[0].branch, Branch::kSession);
    EXPECT_EQ(later.order[0].miss, 50);
    EXPECT_EQ(later.order[0].noise, 0);
  }
}

TEST(Affinity, OwnPlacementsOverrideThePlan) {
  Router router = router_over(cluster(8), options_of(Mode::kPlan));
  PrefixKey k = key(1, 1, 1000, 2000);
  k.history_tokens = 1900;
  const NodeIndex home = router.decide(k, "demo", at_ms(0)).order[0].node;
  const NodeIndex elsewhere = (home + 1) % 8;
  serve_at(router, key(1, 1, 1000, 1900), elsewhere, at_ms(0));
  crowd(router, home, 10, at_ms(0));
  EXPECT_EQ(router.decide(k, "demo", at_ms(1)).order[0].node, elsewhere);
}

// It learns within milliseconds what nodes hold: from themselves, or from the other gateways.
TEST(Affinity, NewGatewayRoutesByResidencyNotByTheTable) {
  for (const Mode mode : {Mode::kExact, Mode::kGossip}) {
    Router router = router_over(cluster(8), options_of(mode));
    SetLoads loads;
    loads.epoch = 7;
    for (int set = 1; set < 50; ++set) loads.sets.push_back(SetLoad{numbered_set(set), 1.0, 1000, "demo"});
    router.plan(at_ms(0), loads);
    for (int set = 1; set < 50; ++set) {
      const PrefixKey k = key(set, 100 + set);
      const NodeIndex home = router.table()->find(k.set, "demo")->nodes()[0];
      const NodeIndex holder = (home + 1) % 8;
      Placement placed;
      placed.node = holder;
      placed.set = k.set;
      placed.set_tokens = 1000;
      router.placements().adopt({&placed, 1});
      const Decision decision = router.decide(k, "demo", at_ms(1));
      EXPECT_EQ(decision.order[0].node, holder) << mode_name(mode) << ", set " << set;
    }
  }
}

TEST(Affinity, StrictSendsASetToItsHomesOnly) {
  RouterOptions options = options_of(Mode::kStrict);
  Router router = router_over(cluster(16), options);
  std::map<size_t, std::set<NodeIndex>> used;
  for (int i = 0; i < 3000; ++i) {
    const PrefixKey k = key(i % 200, i);
    const Decision decision = router.decide(k, "demo", at_ms(i));
    ASSERT_FALSE(decision.order.empty());
    const Homes* homes = router.table()->find(k.set, "demo");
    for (const Candidate& c : decision.order.all()) EXPECT_TRUE(homes->contains(c.node));
    serve_at(router, k, decision.order[0].node, at_ms(i));
    router.plan(at_ms(i));
  }
  EXPECT_FALSE(router.decide(key(-1, 5), "demo", at_ms(3000)).order.empty()) << "no set, no restriction";
}

// Number of homes, by node.
std::map<NodeIndex, size_t> sets_held(const Router& router) {
  std::map<NodeIndex, size_t> held;
  for (const auto& [set, homes] : router.table()->sets()) {
    for (const NodeIndex n : homes.nodes()) held[n] += 1;
  }
  return held;
}

TEST(Affinity, StrictSetWithAFailedHomeMovesAtOnceToANodeWithRoom) {
  RouterOptions options = options_of(Mode::kStrict);
  options.planner.max_nodes_per_set = 1;
  Router router = router_over(cluster(6), options);
  const PrefixKey k = key(3, 1);
  Decision decision = router.decide(k, "demo", at_ms(0));
  ASSERT_EQ(decision.order.size(), 1u);
  const NodeIndex failed = decision.order[0].node;
  std::vector<NodeIndex> roomy;
  for (NodeIndex n = 0; n < 6; ++n) {
    if (n != failed && sets_held(router)[n] < options.planner.max_sets_per_node) roomy.push_back(n);
  }
  const Hash128 set = router.table()->entry(k.set, "demo")->first;
  ASSERT_TRUE(router.extend(k, "demo", decision, at_ms(1)));
  ASSERT_EQ(decision.order.size(), 2u);
  EXPECT_EQ(decision.order[1].node, rendezvous_best(set, router.view(), roomy));
  const Decision next = router.decide(k, "demo", at_ms(2));
  ASSERT_EQ(next.order.size(), 1u);
  EXPECT_EQ(next.order[0].node, decision.order[1].node) << "it stays there";
  for (const auto& [node, held] : sets_held(router)) EXPECT_LE(held, options.planner.max_sets_per_node);

  // Another request that failed there finds the home added for the first.
  Decision late = next;
  late.order = CandidateOrder();
  late.order.push_back(to(failed));
  const auto table = router.table();
  ASSERT_TRUE(router.extend(k, "demo", late, at_ms(3)));
  EXPECT_EQ(late.order[1].node, next.order[0].node);
  EXPECT_EQ(router.table().get(), table.get());
}

TEST(Affinity, StrictSetWithoutRoomSharesAnothersHomes) {
  RouterOptions options = options_of(Mode::kStrict);
  options.planner.strict_sets = 4;
  Router router = router_over(cluster(2), options);  // four places
  for (int set = 0; set < 12; ++set) {
    const PrefixKey k = key(set, set);
    Decision decision = router.decide(k, "demo", at_ms(set));
    ASSERT_EQ(decision.order.size(), 1u);
    ASSERT_TRUE(router.extend(k, "demo", decision, at_ms(set)));
    EXPECT_EQ(decision.order[1].node, 1 - decision.order[0].node);
    for (const auto& [node, held] : sets_held(router)) EXPECT_LE(held, 2u);
    EXPECT_FALSE(router.extend(k, "demo", decision, at_ms(set))) << "both have been asked";
    router.plan(at_ms(set), SetLoads{});
    EXPECT_EQ(router.table()->sets().size(), 4u) << "every set has a home of its own again";
  }
}

TEST(Affinity, StrictSetStaysWithoutAnotherNode) {
  Router router = router_over(cluster(1), options_of(Mode::kStrict));
  Decision decision = router.decide(key(3, 1), "demo", at_ms(0));
  const auto table = router.table();
  EXPECT_FALSE(router.extend(key(3, 1), "demo", decision, at_ms(1)));
  EXPECT_EQ(router.table().get(), table.get());
  Router exact = router_over(cluster(20), options_of(Mode::kExact));
  Decision full = exact.decide(key(3, 1), "demo", at_ms(0));
  EXPECT_FALSE(exact.extend(key(3, 1), "demo", full, at_ms(1))) << "only where the table forbids";
}

TEST(Affinity, RequestWithoutASessionIsFoundByItsChain) {
  Router router = router_over(cluster(20), options_of(Mode::kGossip));
  const auto chained = [](int from, int links) {
    PrefixKey k;
    Hash128 chain = hash_bytes("root");
    for (int i = 0; i < links; ++i) {
      chain = chain_hash(chain, "document " + std::to_string(i < 3 ? 0 : from) + " " + std::to_string(i));
      k.anchors.push_back(Anchor{chain, 0, 512 * (i + 1)});
    }
    k.prompt_tokens = 512 * links + 100;
    return k;
  };
  serve_at(router, chained(1, 12), 7, at_ms(0));
  serve_at(router, chained(2, 8), 4, at_ms(0));
  const Decision longer = router.decide(chained(1, 20), "demo", at_ms(1));
  EXPECT_EQ(longer.order[0].node, 7u);
  EXPECT_EQ(longer.order[0].expect_cached, 512 * 12);
  EXPECT_EQ(at(longer, 4)->expect_cached, 512 * 3) << "it holds what both share";
  EXPECT_EQ(router.decide(chained(2, 9), "demo", at_ms(1)).order[0].node, 4u);
}

TEST(Affinity, CandidatesOfAWidespreadSetAreCountedRightly) {
  Router router = router_over(cluster(200));
  for (NodeIndex n = 0; n < 150; ++n) serve_at(router, key(1, static_cast<int>(n)), n, at_ms(n));
  for (int i = 0; i < 100; ++i) {
    const Decision decision = router.decide(key(1, 500 + i), "demo", at_ms(200));
    for (const Candidate& c : decision.order.all()) {
      EXPECT_EQ(c.expect_cached, c.node < 150 ? 1000 / kBlockTokens * kBlockTokens : 0) << c.node;
    }
    EXPECT_EQ(router.decide(key(1, 80, 1000, 1400), "demo", at_ms(200)).order[0].node, 80u);
  }
}

TEST(Affinity, UnservedModelHasNoCandidates) {
  Router router = router_over(cluster(3));
  EXPECT_TRUE(router.decide(key(1, 1), "other", at_ms(0)).order.empty());
}

TEST(Affinity, ModelsAreRoutedAndMeasuredSeparately) {
  auto all = testing_cluster::nodes(4);
  all[2].models = all[3].models = {"other"};
  Router router = router_over(std::make_shared<ClusterView>(1, all), full_load());
  crowd(router, 2, 100, at_ms(0));
  crowd(router, 3, 100, at_ms(0));
  const Decision decision = router.decide(key(-1, -1), "other", at_ms(0));
  EXPECT_EQ(decision.order.size(), 2u);
  EXPECT_NEAR(decision.order[0].load.relative, 333, 1) << "both at the mean of those that serve the model";
}

}  // namespace affinity_test
}  // namespace troupe::route
