// A fleet on a virtual clock: times that can be worked out by hand, determinism, and that nothing is lost in
// a fault.

#include "sim/fleet/simulator.h"

#include <absl/strings/str_format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/simulator_testing.h"

namespace troupe::sim {
namespace simulator_test {

// The study's node: step = max(4.2 ms + 30 ns a KV token of the decodes, prompt tokens / 30,000 per s) +
// 0.3 ms.
// A node that is back before anybody saw it go is used like any other: only its streams were lost.
TEST(Simulator, ANodeThatIsBackBeforeItsDeathIsSeenIsNotTakenForDead) {
  SimulationOptions options = options_of(2);
  options.detect_ms = 500;
  options.join_ms = 20;
  options.faults = {{.kind = Fault::Kind::kKill, .at_s = 5, .target = 1},
                    {.kind = Fault::Kind::kReturn, .at_s = 5.01, .target = 1}};
  PersonaWorkload workload;
  workload.personas = 40;
  workload.rate = 30;
  workload.duration_s = 20;
  const Result result = run_personas(workload, options);
  ASSERT_EQ(result.node_series.size(), 2u);
  double late = 0;
  for (size_t second = 10; second < 20; ++second)
    late += static_cast<double>(result.node_series[1].work_per_s[second]);
  EXPECT_GT(late, 1000) << "of node 1, from 10 s on";
}

// The same traffic with what only a client could name left out.
class Nameless final : public RequestSource {
 public:
  explicit Nameless(std::unique_ptr<PersonaSource> source) : source_(std::move(source)) {}
  StatusOr<bool> next(TraceRequest& out) override {
    auto more = source_->next(out);
    out.set = 0;
    out.prefix_tokens = 0;
    return more;
  }

 private:
  std::unique_ptr<PersonaSource> source_;
};

// Where a trace names no sets the gateways learn them from its blocks, and first turns find their persona.
TEST(Simulator, SetsWithoutNamesAreLearned) {
  PersonaWorkload workload;
  workload.personas = 60;
  workload.rate = 20;
  workload.turns = 2;
  workload.duration_s = 240;
  SimulationOptions options = options_of(8);
  options.warmup_s = 120;
  const Result named = run_personas(workload, options);
  auto source = PersonaSource::make(workload, options.seed);
  ASSERT_TRUE(source.ok());
  Nameless nameless(*std::move(source));
  const Result learned = run(nameless, options);
  options.router.policy = "round-robin";
  const Result blind = run_personas(workload, options);
  std::printf("hit: named %.3f, learned %.3f, blind %.3f\n", named.hit_tokens, learned.hit_tokens,
              blind.hit_tokens);
  EXPECT_GT(learned.hit_tokens, named.hit_tokens - 0.03);
  EXPECT_GT(learned.hit_tokens, blind.hit_tokens + 0.05);
}

TEST(Simulator, ALoneRequestTakesWhatItsProfileSays) {
  ListSource source({request(0, 1500, 3)});
  const Result result = run(source, options_of(1));
  EXPECT_EQ(result.requests, 1);
  EXPECT_EQ(result.lost, 0);
  EXPECT_NEAR(result.ttft_ms.p50, 50.0 + 0.3, 0.01) << "1,500 tokens at 30,000 a second";
  EXPECT_NEAR(result.tpot_mean_ms, 4.2 + 0.3 + 0.03e-3 * 1501.5, 0.002);
  EXPECT_EQ(result.goodput, 1);
  EXPECT_EQ(result.hit_tokens, 0);
}

// A prompt of 8,000 tokens beside a stream: the whole of it takes as long, but no step of it.
TEST(Simulator, ATpotBudgetKeepsALongPromptFromHoldingUpStreams) {
  SimulationOptions options = options_of(1);
  options.faults = {
      {.kind = Fault::Kind::kLoseReports, .at_s = 0, .target = 0, .for_s = 0.001}};  // tells of gaps
  const auto longest_gap_ms = [&options](int budget_ms) {
    options.scheduler.tpot_budget = std::chrono::milliseconds(budget_ms);
    ListSource source({request(0, 1600, 400, 1), request(0.5, 8000, 1, 2)});
    return run(source, options).faults.stall_max_ms;
  };
  EXPECT_GT(longest_gap_ms(0), 60);  // chunks of 2,048 tokens at 30,000 a second
  EXPECT_LT(longest_gap_ms(15), 25);
}

// The highest of some rates, each a quarter above the one before, at which one node still keeps the limits.
double sustained_rate(Batching batching) {
  SimulationOptions options = options_of(1);
  options.scheduler.batching = batching;
  options.slo_ttft_ms = 2000;
  options.slo_tpot_ms = 50;
  PersonaWorkload workload = kSmall;
  for (workload.rate = 2; workload.rate < 1000; workload.rate *= 1.25) {
    if (run_personas(workload, options).goodput < 0.99) break;
  }
  return workload.rate / 1.25;
}

TEST(Simulator, MergedStepsSustainMoreThanSeparateOnesAndFarMoreThanBatches) {
  const double merged = sustained_rate(Batching::kMerged);
  const double separate = sustained_rate(Batching::kSeparate);
  const double batches = sustained_rate(Batching::kStatic);
  std::printf("requests/s: merged %.1f, separate %.1f, static %.1f\n", merged, separate, batches);
  EXPECT_LT(merged, 500) << "none of the rates is too high";
  EXPECT_GT(batches, 2) << "nor all";
  EXPECT_GE(merged, separate);
  EXPECT_GT(separate, 3 * batches);
}

TEST(Simulator, TheSecondAskOfAPrefixHitsAllFullBlocksButTheLastToken) {
  ListSource source({request(0, 1500, 3), request(1, 1500, 3)});
  const Result result = run(source, options_of(1));
  EXPECT_NEAR(result.hit_tokens, 1488.0 / 3000, 1e-9) << "93 blocks of 16";
  EXPECT_NEAR(result.pooled_lru_hit, 1488.0 / 3000, 1e-9);
  EXPECT_NEAR(result.infinite_hit, result.pooled_lru_hit, 1e-12);
}

TEST(Simulator, TheNextTurnFindsTheAnswerOfTheLast) {
  TraceRequest second = request(1, 1600, 10);
  second.blocks.resize(93);
  const TraceRequest first = request(0, 1500, 40);  // completes blocks 93..95: 1,540 tokens
  second.blocks.insert(second.blocks.end(), first.output_blocks.begin(), first.output_blocks.end());
  while (second.blocks.size() < 100) second.blocks.push_back(7000 + second.blocks.size());
  ListSource source({first, second});
  const Result result = run(source, options_of(1));
  EXPECT_NEAR(result.hit_tokens, 96 * 16.0 / 3100, 1e-9)
      << "the answer's last token is never computed, but block 95 ends before";
}

TEST(Simulator, AnAnswerEndsWhereTheModelsLengthDoes) {
  ListSource source({request(0, 131'000, 500)});
  const Result result = run(source, options_of(1));
  EXPECT_EQ(result.lost, 0);
  EXPECT_EQ(result.seconds.at(4).finished, 1) << "131,000 prompt tokens take 4.4 s, 72 more 0.6 s";
}

TEST(Simulator, ABlockMayHaveTheIdZero) {
  TraceRequest first = request(0, 64, 4), second = request(1, 64, 4);
  first.blocks[0] = second.blocks[0] = 0;
  first.session = second.session = first.set = second.set = 0;
  ListSource source({first, second});
  EXPECT_NEAR(run(source, options_of(1)).hit_tokens, 48.0 / 128, 1e-9) << "all full blocks but the last";
}

// Against the rules of a trace, but nothing to stumble over.
TEST(Simulator, AnIdMayStandForTwoPrefixes) {
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 40; ++i) {
    requests.push_back(request(i, 1600, 20, static_cast<uint64_t>(1 + i % 3)));
    // Blocks of the first request's prompt in the middle of the others'.
    for (size_t b = 20; b < 40; ++b) requests.back().blocks[b] = 1000 + b;
  }
  ListSource source(requests);
  EXPECT_EQ(run(source, options_of(2)).lost, 0);
}

TEST(Simulator, SameSeedSameResult) {
  const Result a = run_personas(kSmall, options_of(4, 3)), b = run_personas(kSmall, options_of(4, 3));
  EXPECT_EQ(a.requests, b.requests);
  EXPECT_EQ(a.hit_tokens, b.hit_tokens);
  EXPECT_EQ(a.ttft_ms.p99, b.ttft_ms.p99);
  EXPECT_EQ(a.work_cov5, b.work_cov5);
  EXPECT_EQ(a.events, b.events);
}

TEST(Simulator, AffinityBeatsRoundRobinAndStaysBelowTheBound) {
  const Result ours = run_personas(kSmall, options_of(4));
  SimulationOptions turns = options_of(4);
  turns.router.policy = "round-robin";
  const Result theirs = run_personas(kSmall, turns);
  EXPECT_EQ(ours.lost, 0);
  EXPECT_EQ(ours.requests, theirs.requests);
  EXPECT_GT(ours.hit_tokens, theirs.hit_tokens + 0.1);
  EXPECT_LE(ours.hit_tokens, ours.infinite_hit + 1e-9);
  EXPECT_GT(ours.hit_tokens, ours.pooled_lru_hit - 0.03);
}

TEST(Simulator, InGossipModeOnlyPeersReportWhichNodeHoldsWhat) {
  SimulationOptions options = options_of(4, 8);
  const double exact = run_personas(kSmall, options).hit_tokens;
  options.router.affinity.mode = route::Mode::kGossip;
  EXPECT_NEAR(run_personas(kSmall, options).hit_tokens, exact, 0.02);
  options.gossip_ms = 1e6;
  EXPECT_LT(run_personas(kSmall, options).hit_tokens, exact - 0.05) << "each knows its own eighth only";
}

// Gateways whose nodes do not report what they did plan from what all have sent. A sample that stays with its
// gateway is an eighth of it.
TEST(Simulator, WithoutReportsGatewaysPlanFromWhatAllOfThemSend) {
  SimulationOptions options = options_of(16, 1);
  options.router.affinity.mode = route::Mode::kPlan;
  const double one = run_personas(kSmall, options).hit_tokens;
  options.gateways = 8;
  const double eight = run_personas(kSmall, options).hit_tokens;
  options.gossip_ms = 1e6;
  const double untold = run_personas(kSmall, options).hit_tokens;
  std::printf("hit: one %.4f, eight %.4f, untold %.4f\n", one, eight, untold);
  // The first plans, of half a minute's traffic here, are each gateway's own.
  EXPECT_GT(eight, one - 0.06);
  EXPECT_LT(untold, eight - 0.1);
}

// Half of the sets have every prompt cached, the others little: nodes have as much to do only if the plan
// goes by what answers report of it.
TEST(Simulator, AnswersReportWhatWasCached) {
  std::vector<TraceRequest> requests;
  for (uint64_t i = 0; i < 2400; ++i) {
    const uint64_t set = 1 + i % 40;
    TraceRequest r = request(static_cast<double>(i) / 40, 2000, 16, set);
    r.session = i + 1;
    r.output_blocks.clear();
    if (set % 2 == 0) {
      r.prefix_tokens = 64;
      for (size_t block = 4; block < r.blocks.size(); ++block) r.blocks[block] = 1'000'000 + i * 1000 + block;
    }
    requests.push_back(std::move(r));
  }
  SimulationOptions options = options_of(4);
  options.router.affinity.mode = route::Mode::kPlan;
  options.warmup_s = 20;
  ListSource source(std::move(requests));
  const auto result = simulate(source, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(result->work_cov, 0.1);
}

// One of the others tells it what nodes hold, and workers tell it anew.
TEST(Simulator, AGatewayThatRestartsGoesOnAlmostAsBefore) {
  SimulationOptions options = options_of(4, 4);
  options.profile.kv_cache_tokens = 40'000;
  for (const route::Mode mode : {route::Mode::kExact, route::Mode::kGossip}) {
    options.router.affinity.mode = mode;
    options.faults.clear();
    const double calm = run_personas(kSmall, options).hit_tokens;
    std::string restarts;
    for (int at_s = 20; at_s < 60; at_s += 5)
      restarts += absl::StrFormat("{\"at_s\": %d, \"restart_gateway\": %d}\n", at_s, at_s / 5 % 4);
    options.faults = *parse_faults(restarts, "f");
    const double restarted = run_personas(kSmall, options).hit_tokens;
    std::printf("%s: hit %.4f, restarted %.4f\n", route::mode_name(mode).data(), calm, restarted);
    EXPECT_GT(restarted, calm - 0.005) << route::mode_name(mode);
  }
}

// Streams that were not started are sent again, those that were go on; without `resume` they are cut short.
TEST(Simulator, ADeadNodesStreamsAreLostUnlessTheyGoOnElsewhere) {
  SimulationOptions options = options_of(4, 2);
  options.faults = *parse_faults("{\"at_s\": 30, \"kill\": 1}\n{\"at_s\": 45, \"return\": 1}", "f");
  options.resume = false;
  const Result cut = run_personas(kSmall, options);
  EXPECT_EQ(cut.faults.resumed, 0);
  options.resume = true;
  const Result result = run_personas(kSmall, options);
  EXPECT_EQ(cut.lost, result.faults.resumed) << "the same streams run when it dies";
  ASSERT_EQ(cut.losses.size(), 1u);
  EXPECT_EQ(cut.losses[0].why, "its node died while it answered");
  EXPECT_EQ(cut.losses[0].count, cut.lost);
  EXPECT_FALSE(cut.node_series.at(1).up.at(40));
  EXPECT_TRUE(cut.node_series.at(1).up.at(20));
  EXPECT_EQ(result.lost, 0);
  ASSERT_TRUE(result.has_faults);
  EXPECT_GT(result.faults.resumed, 0);
  EXPECT_GE(result.faults.stall_max_ms, 50) << "it takes so long to be seen";
  EXPECT_LT(result.faults.stall_max_ms, 1000);
  const auto& series = result.node_series.at(1);
  EXPECT_EQ(series.work_per_s.at(40), 0);
  EXPECT_GT(series.work_per_s.at(55), 0);
}

TEST(Simulator, DistinguishesAPromptThatIsTooLongFromALateOne) {
  SimulationOptions options = options_of(1);
  options.profile.max_model_len = 1024;
  options.drain_s = 0.001;
  ListSource source({request(0, 160, 16), request(1, 2048, 16, 2), request(2, 960, 16, 3)});
  const Result result = run(source, options);
  ASSERT_EQ(result.losses.size(), 2u);
  EXPECT_EQ(result.losses[0].why, "not begun when the run ended");
  EXPECT_EQ(result.losses[1].why, "too long for the nodes");
  EXPECT_EQ(result.lost, 2);
}

// Memory is what is short: two nodes hold a tenth of what eight more can.
TEST(Simulator, HitIsNotAboveThePooledBoundWhereNodesJoin) {
  SimulationOptions options = options_of(2);
  options.profile.kv_cache_tokens = 16'000;
  options.profile.max_model_len = 8192;
  options.faults = *parse_faults("{\"at_s\": 5, \"join\": 8}", "f");
  const Result result = run_personas(kSmall, options);
  EXPECT_GT(result.hit_tokens, 0.6);
  EXPECT_LE(result.hit_tokens, result.pooled_lru_hit + 0.02);
  EXPECT_LE(result.pooled_lru_hit, result.infinite_hit);
}

TEST(Simulator, EveryOtherFaultIsSurvivedToo) {
  SimulationOptions options = options_of(3, 2);
  options.conservation_every = 4096;
  options.faults = *parse_faults(
      "{\"at_s\": 10, \"join\": 2}\n{\"at_s\": 15, \"slow\": 0, \"factor\": 3, \"for_s\": 5}\n"
      "{\"at_s\": 20, \"stall\": 1, \"for_s\": 0.5}\n{\"at_s\": 25, \"lose_reports\": 2, \"for_s\": 5}\n"
      "{\"at_s\": 30, \"lose_residency\": 0}\n{\"at_s\": 35, \"restart_gateway\": 1}\n{\"at_s\": 40, "
      "\"kill\": 4}",
      "f");
  for (const route::Mode mode :
       {route::Mode::kExact, route::Mode::kGossip, route::Mode::kPlan, route::Mode::kStrict}) {
    options.router.affinity.mode = mode;
    const Result result = run_personas(kSmall, options);
    // Where the table forbids all but one node, that node's death loses what was on its way.
    EXPECT_LE(result.lost, mode == route::Mode::kStrict ? 2 : 0) << route::mode_name(mode);
    EXPECT_GE(result.faults.stall_max_ms, 450);
    EXPECT_EQ(result.node_series.size(), 5u);
    EXPECT_GT(result.node_series[3].requests, 0) << "a node that joined is used";
    EXPECT_GT(result.hit_tokens, 0.5) << route::mode_name(mode);
  }
}

// The gateways learn of the death only after the node is back: what ran in its first life goes on elsewhere,
// once.
TEST(Simulator, ANodeThatReturnsBeforeItsDeathIsSeenKeepsItsLivesApart) {
  SimulationOptions options = options_of(3, 2);
  options.detect_ms = 500;
  options.faults = *parse_faults(
      "{\"at_s\": 20, \"kill\": 0}\n{\"at_s\": 20.01, \"return\": 0}\n{\"at_s\": 20.02, \"kill\": 0}\n"
      "{\"at_s\": 30, \"return\": 0}",
      "f");
  const Result result = run_personas(kSmall, options);
  EXPECT_EQ(result.lost, 0);
  EXPECT_GT(result.faults.resumed, 0);
  EXPECT_GT(result.node_series[0].work_per_s.at(50), 0);
}

// Ids of blocks, sets and sessions are any numbers: 0 is one, and small ones must spread as well as large
// ones.
TEST(Simulator, SmallNumbersAreAsGoodAsHashes) {
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 400; ++i) {
    TraceRequest r = request(i * 0.05, 64, 2, static_cast<uint64_t>(i % 40));
    r.session = r.set = 0;
    for (size_t b = 0; b < r.blocks.size(); ++b)
      r.blocks[b] = static_cast<uint64_t>(i % 40) * 4 + b;  // 0 too
    r.prefix_tokens = 0;
    requests.push_back(std::move(r));
  }
  for (TraceRequest& r : requests) r.session = r.set = r.blocks[0] + 1;
  SimulationOptions options = options_of(4);
  options.router.policy = "rendezvous-session";
  ListSource source(requests);
  const Result result = run(source, options);
  EXPECT_GT(result.hit_tokens, 0.6) << "48 of 64 tokens, but for the first ask of each";
  for (const NodeSeries& node : result.node_series) EXPECT_GT(node.requests, 20) << node.id;
}

TEST(Simulator, ATraceMayCountFromAnywhereButNotLastForEver) {
  TraceRequest late = request(3e9, 64, 2);  // nothing up to it is simulated: that would take hours
  ListSource source({request(0, 64, 2), late});
  EXPECT_THAT(std::string(simulate(source, options_of(1)).status().message()),
              ::testing::HasSubstr("3000000000 s after the first"));
  TraceRequest wide = request(0, 64, 2);
  wide.block_tokens = 1'000'000;
  wide.blocks.clear();
  ListSource blocks({wide});
  EXPECT_THAT(std::string(simulate(blocks, options_of(1)).status().message()),
              ::testing::HasSubstr("do not fit the 800000 KV tokens"));
}

TEST(Simulator, WhatIsNeverAdmittedIsLost) {
  ListSource source({request(0, 1500, 3), request(0.001, 1500, 3, 2)});
  SimulationOptions options = options_of(1);
  options.drain_s = 0.08;
  const Result result = run(source, options);
  EXPECT_EQ(result.lost, 1) << "the second prompt is computed behind the first, and time is over";
}

TEST(Simulator, RefusesOptionsThatCannotBe) {
  const auto says = [](SimulationOptions options, const char* words) {
    ListSource source({});
    EXPECT_THAT(std::string(simulate(source, options).status().message()), ::testing::HasSubstr(words));
  };
  SimulationOptions options = options_of(0);
  says(options, "nodes is 0");
  options = options_of(1);
  options.router.policy = "magic";
  says(options, "magic");
  options = options_of(1);
  options.faults = *parse_faults("{\"at_s\": 1, \"kill\": 1}", "f");
  says(options, "there is no node 1");
}

}  // namespace simulator_test
}  // namespace troupe::sim
