// The router as a whole: its rules under every policy, and random operations against its invariants.

#include "gateway/route/router.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace router_test {

using namespace testing_cluster;

RouterOptions options_of(std::string policy, Mode mode = Mode::kExact, int64_t gateways = 1) {
  RouterOptions options;
  options.policy = std::move(policy);
  options.affinity.mode = mode;
  options.affinity.gateways = gateways;
  return options;
}

// The set's length that is known after a first turn was answered with so many cached tokens.
int64_t learned_from(int64_t cached_tokens) {
  auto view = cluster(1);
  Router router = router_over(view, options_of("affinity", Mode::kGossip), 1);
  PrefixKey k = key(0, 0, 1000, 1100);
  k.prefix_tokens = k.prompt_tokens = k.history_tokens = 0;
  k.prefix_bytes = 4000;
  k.prompt_bytes = 4400;
  const Decision decision = router.decide(k, "demo", at_ms(0));
  InFlight sent = router.on_sent(k, "demo", decision.order[0], at_ms(0));
  router.on_finished(k, sent, AnswerCounts{1100, 10, cached_tokens, true}, at_ms(5));
  return router.known().sets.tokens(k.set);
}

TEST(Router, LearnsAPrefixLengthOnlyFromAPlausibleHit) {
  EXPECT_EQ(learned_from(1008), 1008) << "4,000 bytes come to about 1,000 tokens";
  EXPECT_EQ(learned_from(7), 0) << "a few tokens of a template that all share";
  EXPECT_EQ(learned_from(9000), 0) << "a whole conversation";
}

struct Flight {
  PrefixKey key;
  InFlight sent;
};

// A seeded life of a cluster: requests, deaths, joins, reports, residency, plans. Returns a digest of all
// decisions.
uint64_t live(const RouterOptions& options, uint64_t seed, int steps) {
  Random random(seed);
  const size_t count = 1 + random.below(40);
  auto view = cluster(count);
  Router router = router_over(view, options, seed);
  std::vector<Flight> open;
  uint64_t digest = 0;
  for (int step = 0; step < steps; ++step) {
    const TimePoint now = at_ms(step * 20);
    const auto node = random.below(static_cast<uint32_t>(count));
    if (random.below(12) == 0) {
      const NodeState states[] = {NodeState::kAlive, NodeState::kSuspect, NodeState::kDead,
                                  NodeState::kDraining};
      const NodeState state = states[random.below(4)];
      if (state == NodeState::kDead) router.forget_node(node);
      view = with_state(*view, node, state);
      router.update_cluster(view);
    }
    if (random.below(4) == 0) {
      NodeReport report;
      report.running = random.below(60);
      report.pending_prefill_tokens = random.below(5000);
      report.work_tokens_total = step * 500;
      report.max_num_seqs = 64;
      report.kv_tokens_total = 20'000 + random.below(1000);
      router.report(node, report, now);
    }
    if (options.affinity.mode == Mode::kExact && random.below(3) == 0) {
      const ResidencyItem item{numbered_set(static_cast<int>(random.below(12))), HolderKind::kSet,
                               random.below(1200)};
      ResidencyEvent event;
      event.kind = random.below(5) == 0 ? ResidencyEvent::Kind::kSnapshot : ResidencyEvent::Kind::kAdmitted;
      event.epoch = random.below(2);
      event.seq = static_cast<uint64_t>(step);
      event.items = {&item, 1};
      router.residency(node, event);
    }
    router.plan(now);
    const PrefixKey k = key(static_cast<int>(random.below(12)) - 1, static_cast<int>(random.below(60)) - 1,
                            1000, 1000 + random.below(3000));
    const Decision seen = router.preview(k, "demo", now);
    const Decision decision = router.decide(k, "demo", now);
    EXPECT_EQ(decision.order.empty(), view->routable_count() == 0) << "seed " << seed;
    EXPECT_EQ(seen.order.size(), decision.order.size());
    std::set<NodeIndex> distinct;
    int last_class = 0;
    for (const Candidate& c : decision.order.all()) {
      EXPECT_TRUE(distinct.insert(c.node).second) << "seed " << seed << ": a node twice";
      EXPECT_TRUE(view->routable(c.node)) << "seed " << seed << ": a node known dead";
      const int its_class = c.suspect ? 1 : 0;
      EXPECT_GE(its_class, last_class) << "seed " << seed << ": a suspect before a healthy node";
      last_class = its_class;
      EXPECT_GE(c.expect_cached, 0);
      EXPECT_LT(c.expect_cached, k.prompt_tokens);
      EXPECT_TRUE(std::isfinite(c.cost));
      digest = digest * 31 + c.node;
    }
    if (!decision.order.empty()) {
      EXPECT_EQ(seen.order[0].node, decision.order[0].node) << "explain and the decision differ";
      open.push_back({k, router.on_sent(k, "demo", decision.order[0], now)});
      if (random.below(3) > 0) router.first_byte(k, open.back().sent, now);
    }
    while (open.size() > 30 || (!open.empty() && random.below(2) == 0)) {
      std::swap(open[random.below(static_cast<uint32_t>(open.size()))], open.back());
      std::optional<AnswerCounts> counts;
      if (random.below(4) > 0) counts = AnswerCounts{open.back().key.prompt_tokens, 50, 900, true};
      router.on_finished(open.back().key, open.back().sent, counts, now);
      open.pop_back();
    }
    for (NodeIndex n = 0; n < count; ++n) {
      EXPECT_LE(router.known().shadow.charge_of(n), options.memory.node_kv_tokens_guess);
    }
    if (step % 64 == 0) {
      EXPECT_EQ(router.known().shadow.check(), "") << "seed " << seed;
      EXPECT_EQ(router.known().exact->index.check(), "") << "seed " << seed;
    }
    if (::testing::Test::HasFailure()) return 0;
  }
  for (Flight& flight : open) router.on_finished(flight.key, flight.sent, std::nullopt, at_ms(steps * 20));
  EXPECT_EQ(router.loads().in_flight_total(), 0) << "seed " << seed;
  EXPECT_EQ(router.loads().pending_tokens_total(), 0) << "seed " << seed;
  return digest;
}

// Sets follow the requests sent: example dialogues common to all conversations become part of the set.
TEST(Router, NamesSetsByTheRequestsSent) {
  Router router = router_over(cluster(4));
  const auto key_of = [&](int conversation) {
    GenerateRequest request;
    request.kind = GenerateRequest::Kind::kChat;
    request.model = "demo";
    request.messages = {{Role::kSystem, std::string(1000, 'c'), {}},
                        {Role::kUser, "an example", {}},
                        {Role::kAssistant, std::string(400, 'e'), {}},
                        {Role::kUser, "question " + std::to_string(conversation), {}}};
    PrefixKey k = make_prefix_key(request, std::to_string(conversation));
    router.refine(k);
    return k;
  };
  for (int i = 0; i < 3; ++i) {
    const PrefixKey k = key_of(i);
    EXPECT_EQ(k.prefix_messages, 1) << i;
    serve(router, k, at_ms(i));
  }
  const PrefixKey learned = key_of(3);
  EXPECT_EQ(learned.prefix_messages, 3);
  EXPECT_EQ(learned.set, learned.anchors[2].hash);
  EXPECT_EQ(learned.prefix_bytes, 1000u + 10 + 400);
}

TEST(Router, RandomUseNeverOrdersADeadNodeOrANodeTwice) {
  for (const Mode mode : {Mode::kExact, Mode::kGossip, Mode::kPlan, Mode::kStrict}) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const RouterOptions options = options_of("affinity", mode, 1 + static_cast<int64_t>(seed % 3));
      const uint64_t digest = live(options, seed, 300);
      ASSERT_FALSE(HasFailure()) << mode_name(mode) << " " << seed;
      EXPECT_EQ(live(options, seed, 300), digest) << mode_name(mode) << " " << seed;
    }
  }
}

TEST(Router, EveryPolicyKeepsTheSameRules) {
  for (const std::string& policy : policy_names()) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      live(options_of(policy), seed, 200);
      ASSERT_FALSE(HasFailure()) << policy << " " << seed;
    }
  }
}

TEST(Router, UnansweredTryLeavesNoPlacement) {
  Router router = router_over(cluster(4));
  const PrefixKey k = key(1, 7);
  InFlight failed = router.on_sent(k, "demo", to(2), at_ms(0));
  router.on_finished(k, failed, std::nullopt, at_ms(1));
  EXPECT_TRUE(router.known().shadow.empty());
  EXPECT_EQ(router.loads().in_flight_total(), 0);
  EXPECT_EQ(router.loads().pending_tokens_total(), 0);
}

TEST(Router, RevivedNodeHoldsNothing) {
  auto view = cluster(4);
  Router router = router_over(view);
  const PrefixKey k = key(1, 7);
  serve_at(router, k, 2, at_ms(0));
  InFlight late = router.on_sent(k, "demo", to(2), at_ms(1));
  router.forget_node(2);
  router.update_cluster(with_state(*view, 2, NodeState::kDead));
  const Decision without = router.decide(k, "demo", at_ms(2));
  for (const Candidate& c : without.order.all()) EXPECT_NE(c.node, 2u);
  router.update_cluster(with_state(router.view(), 2, NodeState::kAlive));
  router.first_byte(k, late, at_ms(3));  // a late byte of the dead node
  router.on_finished(k, late, AnswerCounts{1100, 50, 0, true}, at_ms(3));
  const Decision back = router.decide(k, "demo", at_ms(4));
  for (const Candidate& c : back.order.all()) EXPECT_EQ(c.expect_cached, 0);
  EXPECT_EQ(router.loads().in_flight_total(), 0);
}

TEST(Router, SuspicionMakesNoNewTableAndADeathOneAtOnce) {
  const auto view = cluster(6);
  Router router = router_over(view);
  for (int set = 0; set < 50; ++set) serve(router, key(set, -1), at_ms(set));
  router.plan(at_ms(100));
  const auto table = router.table();
  EXPECT_EQ(table->sets().size(), 50u);
  const auto suspect = with_state(*view, 3, NodeState::kSuspect);
  router.update_cluster(suspect);
  EXPECT_EQ(router.table().get(), table.get());
  router.update_cluster(with_state(*suspect, 3, NodeState::kDead));
  EXPECT_NE(router.table().get(), table.get());
  for (const auto& [set, homes] : router.table()->sets()) EXPECT_FALSE(homes.contains(3));
}

TEST(Router, PlansOnceATick) {
  Router router = router_over(cluster(4));
  router.plan(at_ms(0));
  serve(router, key(1, -1), at_ms(1));
  router.plan(at_ms(2));
  EXPECT_EQ(router.table()->epoch(), 1u) << "the first sets are planned for at once";
  serve(router, key(2, -1), at_ms(3));
  router.plan(at_ms(1000));
  EXPECT_EQ(router.table()->epoch(), 1u);
  router.plan(at_ms(4002));
  EXPECT_EQ(router.table()->epoch(), 2u);
}

// The estimate when a request is sent differs much from its actual work: the node recomputes what it has
// forgotten.
TEST(Router, PlansFromTheWorkReportedByAnswers) {
  Router router = router_over(cluster(4), options_of("affinity", Mode::kPlan, 2));
  const auto served = [&](int set, bool answers, const std::optional<AnswerCounts>& counts) {
    const PrefixKey k = key(set, -1);
    InFlight sent = router.on_sent(k, "demo", to(1), at_ms(1));
    if (answers) router.first_byte(k, sent, at_ms(2));
    router.on_finished(k, sent, counts, at_ms(3));
  };
  served(1, true, AnswerCounts{1100, 10, 1096, true});
  served(2, true, AnswerCounts{1100, 500, 0, true});
  served(3, false, std::nullopt);
  served(4, true, std::nullopt);                       // it broke off
  served(5, true, AnswerCounts{1100, 100, 0, false});  // by a worker that reports no hits
  router.plan(at_ms(4));
  const auto sample = decode_set_loads(router.planning().own().message());
  ASSERT_TRUE(sample.ok()) << sample.status();
  std::map<Hash128, SetLoad> loads;
  for (const SetLoad& load : sample->sets) loads[load.set] = load;
  EXPECT_NEAR(loads[numbered_set(1)].work, 14, 1);
  EXPECT_NEAR(loads[numbered_set(2)].work, 1600, 16);
  EXPECT_FALSE(loads.contains(numbered_set(3))) << "nothing came of it";
  EXPECT_GE(loads[numbered_set(4)].work, 1089);
  EXPECT_NEAR(loads[numbered_set(5)].work, 1200, 12);
  EXPECT_EQ(loads[numbered_set(1)].tokens, 1000);
}

TEST(Router, PlacementsAreSharedBetweenGateways) {
  const auto view = cluster(8);
  Router a = router_over(view, options_of("affinity", Mode::kGossip, 2), 1);
  Router b = router_over(view, options_of("affinity", Mode::kGossip, 2), 2);
  for (int session = 0; session < 40; ++session) {
    const PrefixKey k = key(session % 10, session);
    const NodeIndex node = serve(a, k, at_ms(session));
    const auto told = a.placements().take();
    ASSERT_EQ(told.size(), 1u);
    b.placements().adopt(told);
    const Decision decision = b.decide(key(session % 10, session, 1000, 1300), "demo", at_ms(session));
    EXPECT_EQ(decision.order[0].node, node);
    EXPECT_EQ(decision.order[0].branch, Branch::kSession);
  }
  EXPECT_TRUE(a.placements().take().empty());
  EXPECT_TRUE(b.placements().take().empty()) << "what was heard is not told again";
}

TEST(Router, UnfetchedPlacementsAreBounded) {
  RouterOptions options = options_of("affinity", Mode::kGossip, 2);
  options.memory.outbox_max = 100;
  options.memory.placements_per_node = 50;
  options.memory.sets_max = 20;
  Router router = router_over(cluster(2), options);
  for (int i = 0; i < 2000; ++i) serve(router, key(i % 70, i), at_ms(i));
  EXPECT_LE(router.known().shadow.items_of(0), 50u);
  EXPECT_LE(router.known().shadow.keys(), 100u);
  EXPECT_EQ(router.known().sets.size(), 20u);
  const size_t told = router.placements().take().size();
  EXPECT_LE(told, 100u);
  EXPECT_EQ(told + router.placements().dropped(), 2000u);
}

TEST(Router, ShadowOfANodeIsAsLargeAsItsCache) {
  Router router = router_over(cluster(1));
  NodeReport report;
  report.kv_tokens_total = 5000;
  router.report(0, report, at_ms(0));
  for (int i = 0; i < 100; ++i) serve(router, key(i % 3, i), at_ms(i));
  EXPECT_LE(router.known().shadow.charge_of(0), 5000);
  EXPECT_GT(router.known().shadow.charge_of(0), 4000);
}

TEST(Router, ReportedResidencyReplacesPlacements) {
  Router router = router_over(cluster(2), options_of("affinity", Mode::kExact, 2));
  serve_at(router, key(1, 1), 0, at_ms(0));
  EXPECT_FALSE(router.known().shadow.empty());
  ResidencyEvent empty;
  empty.epoch = 9;
  EXPECT_EQ(router.residency(0, empty), FeedResult::kApplied);
  EXPECT_TRUE(router.known().shadow.empty()) << "it has said that it holds nothing";
  router.placements().take();
  serve_at(router, key(1, 1), 0, at_ms(1));
  EXPECT_TRUE(router.placements().take().empty()) << "it tells every gateway itself";
  router.decide(key(2, 2), "demo", at_ms(2000));
  EXPECT_EQ(router.known().shadow.items_of(0), 0u) << "what it has not told of by now it does not keep";
  router.residency_lost(0);
  serve_at(router, key(1, 1), 0, at_ms(2001));
  router.decide(key(2, 2), "demo", at_ms(4000));
  EXPECT_GT(router.known().shadow.items_of(0), 0u);
}

// A worker's report takes a step or two; a user's next turn, or the persona's next user, need not wait for
// it.
TEST(Router, PlacementIsRememberedUntilTheWorkerReportsIt) {
  Router router = router_over(cluster(4), options_of("affinity", Mode::kExact));
  for (NodeIndex n = 0; n < 4; ++n) {
    ResidencyEvent empty;
    empty.epoch = 1;
    ASSERT_EQ(router.residency(n, empty), FeedResult::kApplied);
  }
  const PrefixKey first = key(1, 1);
  serve_at(router, first, 2, at_ms(0));
  EXPECT_EQ(router.decide(first, "demo", at_ms(1)).order[0].node, 2u) << "the same conversation";
  EXPECT_EQ(router.decide(key(1, 2), "demo", at_ms(1)).order[0].node, 2u) << "another of the same persona";

  const ResidencyItem told[] = {{first.set, HolderKind::kSet, 64}, {first.session, HolderKind::kSession, 80}};
  ASSERT_EQ(router.residency(2, {ResidencyEvent::Kind::kAdmitted, 1, 1, told}), FeedResult::kApplied);
  EXPECT_TRUE(router.known().shadow.empty()) << "told: nothing is guessed";
  serve_at(router, key(1, 3), 2, at_ms(2));
  EXPECT_TRUE(router.known().shadow.holders(first.set).empty()) << "no set is counted twice";

  const ResidencyItem gone[] = {{key(1, 3).session, HolderKind::kSession, 0},
                                {first.set, HolderKind::kSet, 0}};
  ASSERT_EQ(router.residency(2, {ResidencyEvent::Kind::kEvicted, 1, 2, gone}), FeedResult::kApplied);
  EXPECT_TRUE(router.known().shadow.empty()) << "evicted before it was told of";
}

// Two completions, one of which continues the other's end; neither names a session.
TEST(Router, PromptWithoutASessionIsFoundByItsLinksDespiteAFeed) {
  Router router = router_over(cluster(4), options_of("affinity", Mode::kExact));
  const Hash128 set = numbered_set(1);
  const ResidencyItem held[] = {{set, HolderKind::kSet, 256}};
  for (NodeIndex n = 0; n < 4; ++n) {
    ASSERT_EQ(router.residency(n, {ResidencyEvent::Kind::kSnapshot, 1, 1, held}), FeedResult::kApplied);
  }
  PrefixKey k;
  k.set = set;
  k.prefix_bytes = 1024;
  for (size_t i = 0; i < 8; ++i)
    k.anchors.push_back({i == 0 ? set : numbered_set(100 + int(i)), (i + 1) * 1024, 0});
  k.prompt_bytes = 8 * 1024;
  serve_at(router, k, 2, at_ms(0));
  // Further events do not make it forgotten.
  ASSERT_EQ(router.residency(2, {ResidencyEvent::Kind::kAdmitted, 1, 2, held}), FeedResult::kApplied);
  k.anchors.push_back({numbered_set(200), 9 * 1024, 0});
  k.prompt_bytes = 9 * 1024 + 10;
  const Decision next = router.decide(k, "demo", at_ms(10));
  EXPECT_EQ(next.order[0].node, 2u);
  EXPECT_GT(next.order[0].expect_cached, next.order[1].expect_cached + 1000);
}

TEST(Router, LengthsAreEstimatedFromBytesAndLearnedFromAnswers) {
  Router router = router_over(cluster(1));
  PrefixKey k;
  k.set = numbered_set(1);
  k.session = hash_bytes("s");
  k.prefix_bytes = 4000;
  k.prompt_bytes = 4400;
  EXPECT_EQ(router.decide(k, "demo", at_ms(0)).order[0].miss, 1100);
  InFlight sent = router.on_sent(k, "demo", to(0), at_ms(0));
  router.first_byte(k, sent, at_ms(1));
  router.on_finished(k, sent, AnswerCounts{1100, 90, 880, true}, at_ms(2));
  EXPECT_EQ(router.known().sets.tokens(k.set), 880);
  k.session = hash_bytes("another");
  EXPECT_EQ(router.decide(k, "demo", at_ms(3)).order[0].expect_cached, 880);
}

TEST(TokenRatio, StartsWithAGuessAndLearnsFromWorkers) {
  TokenRatio ratio;
  EXPECT_EQ(ratio.tokens(4000), 1000);
  for (int i = 0; i < 2000; ++i) ratio.learn(4000, 400);
  EXPECT_NEAR(static_cast<double>(ratio.tokens(1000)), 100, 2);
  ratio.learn(0, 5);
  ratio.learn(100, 0);
  EXPECT_NEAR(static_cast<double>(ratio.tokens(1000)), 100, 2);
}

TEST(Router, RoundRobinTakesTurnsAndLeastRequestsTakesTheIdlest) {
  Router turns = router_over(cluster(3), options_of("round-robin"));
  std::vector<NodeIndex> got;
  for (int i = 0; i < 6; ++i) got.push_back(serve(turns, key(1, 1), at_ms(i)));
  EXPECT_EQ(got, (std::vector<NodeIndex>{0, 1, 2, 0, 1, 2}));
  Router least = router_over(cluster(3), options_of("least-requests"));
  std::set<NodeIndex> used;
  for (int i = 0; i < 3; ++i) {
    const Decision decision = least.decide(key(1, 1), "demo", at_ms(i));
    used.insert(least.on_sent(key(1, 1), "demo", decision.order[0], at_ms(i)).node);
  }
  EXPECT_EQ(used.size(), 3u);
}

TEST(Policy, UnknownNamesAreRefusedWithTheListOfKnownOnes) {
  EXPECT_TRUE(check_policy("affinity").ok());
  const Status unknown = check_policy("magic");
  ASSERT_FALSE(unknown.ok());
  for (const auto& name : policy_names()) EXPECT_NE(unknown.message().find(name), absl::string_view::npos);
}

TEST(LruMap, AgreesWithAPlainModelUnderRandomUse) {
  Random random(7);
  LruMap<int> map(16);
  std::vector<int> model;  // most recent first
  for (int step = 0; step < 20'000; ++step) {
    const int number = static_cast<int>(random.below(40));
    map.touch(numbered_set(number)) = number;
    std::erase(model, number);
    model.insert(model.begin(), number);
    if (model.size() > 16) model.pop_back();
    std::vector<int> got;
    map.for_each([&](const Hash128&, int& value) { got.push_back(value); });
    ASSERT_EQ(got, model);
  }
}

}  // namespace router_test
}  // namespace troupe::route
