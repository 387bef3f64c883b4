// Nodes whose cache begins empty: what is computed there ahead, and what it saves who asks.

#include <cstdio>

#include "tests/sim/simulator_testing.h"

namespace troupe::sim {
namespace simulator_test {

// Share of the prompt tokens first admitted in these seconds that were found cached.
double hit_in(const Result& result, size_t from, size_t seconds) {
  int64_t prompts = 0, hits = 0;
  for (size_t i = from; i < from + seconds; ++i) {
    prompts += result.seconds.at(i).prompt_tokens;
    hits += result.seconds.at(i).hit_tokens;
  }
  return static_cast<double>(hits) / static_cast<double>(prompts);
}

// Its personas are computed there before their requests come: what a node that joins costs is not paid by who
// asks.
TEST(Simulator, ANodeThatJoinsHasItsPersonasComputedAhead) {
  PersonaWorkload workload;
  workload.personas = 400;
  workload.zipf = 0.9;
  workload.rate = 100;
  workload.duration_s = 90;
  for (const int gateways : {1, 2}) {
    SimulationOptions options = options_of(4, gateways);
    options.conservation_every = 4096;
    options.faults = *parse_faults("{\"at_s\": 60, \"join\": 2}", "f");
    const Result ahead = run_personas(workload, options);
    options.handover_s = 0;
    const Result ramped = run_personas(workload, options);
    options.join_ramp_s = 0;
    const Result at_once = run_personas(workload, options);
    const auto hits = [](const Result& result) { return hit_in(result, 60, 15); };
    const auto early = [](const Result& result) { return result.node_series[4].work_per_s.at(60); };
    std::printf(
        "%d gateways: hits of the 15 s after a join: computed ahead %.3f, only a rising share %.3f, neither "
        "%.3f; first second's work there: %.0f, %.0f, %.0f tokens\n",
        gateways, hits(ahead), hits(ramped), hits(at_once), early(ahead), early(ramped), early(at_once));
    EXPECT_EQ(ahead.lost + ramped.lost + at_once.lost, 0);
    EXPECT_GT(hits(ahead), hits(at_once));
    EXPECT_GT(early(ahead), 2 * early(ramped));
    EXPECT_GT(ahead.node_series[4].requests, 0);
    options.router.policy = "lmetric";
    const Result rival = run_personas(workload, options);
    options.join_ramp_s = options.handover_s = 20;
    EXPECT_EQ(run_personas(workload, options).hit_tokens, rival.hit_tokens) << "others are as they are";
  }
}

// Busy nodes whose memory has room for everything come to hold everything. One that is restarted is not sent
// what it has lost before it has it again.
TEST(Simulator, ARollingRestartCostsLittleWhereAllHoldEverything) {
  const PersonaWorkload workload{.personas = 48,
                                 .card_tokens = 900,
                                 .turns = 5,
                                 .think_s = 3,
                                 .output_tokens = 50,
                                 .rate = 53,
                                 .duration_s = 90,
                                 .context_tokens = 4096};
  SimulationOptions options = options_of(8, 2);
  options.profile.max_num_seqs = 3;
  options.profile.costs.overhead_us *= 3;
  options.profile.costs.weights_us *= 3;
  options.profile.costs.prefill_token_us *= 3;
  double calm = 0, drained = 0, ahead = 0, cold = 0;
  for (options.seed = 1; options.seed <= 4; ++options.seed) {
    const auto hits = [&] { return hit_in(run_personas(workload, options), 30, 56) / 4; };
    const auto restart_all = [&](Fault leaves, double back_after_s) {
      options.faults.clear();
      for (int32_t node = 0; node < 8; ++node) {
        leaves.at_s = 30 + 7.0 * node;
        leaves.target = node;
        options.faults.push_back(leaves);
        options.faults.push_back(
            {.kind = Fault::Kind::kReturn, .at_s = leaves.at_s + back_after_s, .target = node});
      }
    };
    options.faults.clear();
    calm += hits();
    restart_all({.kind = Fault::Kind::kDrain, .for_s = 4.9}, 5);
    drained += hits();
    restart_all({.kind = Fault::Kind::kKill}, 1);
    ahead += hits();
    options.handover_s = 0;
    cold += hits();
    options.handover_s = 20;
  }
  std::printf(
      "hits: calm %.3f; while every node is restarted: drained %.3f, stopped %.3f, and without computing "
      "ahead %.3f\n",
      calm, drained, ahead, cold);
  EXPECT_LT(calm - drained, 0.015);
  EXPECT_LT(calm - ahead, 0.025);
  EXPECT_LT(calm - ahead, 0.6 * (calm - cold));
}

// The node that was computing for others dies, comes back and has it done again.
TEST(Simulator, WhatWasBeingComputedAheadDiesWithItsNode) {
  SimulationOptions options = options_of(3, 2);
  options.conservation_every = 512;
  options.faults = *parse_faults(
      "{\"at_s\": 20, \"join\": 2}\n{\"at_s\": 20.1, \"kill\": 3}\n{\"at_s\": 21, \"restart_gateway\": 1}\n"
      "{\"at_s\": 25, \"return\": 3}\n{\"at_s\": 26.05, \"kill\": 3}\n{\"at_s\": 30, \"return\": 3}",
      "f");
  const Result result = run_personas(kSmall, options);
  EXPECT_EQ(result.lost, 0);
  EXPECT_GT(result.node_series[3].work_per_s.at(50), 0);
}

}  // namespace simulator_test
}  // namespace troupe::sim
