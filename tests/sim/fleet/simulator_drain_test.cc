// Nodes that are asked to go: what they have is computed elsewhere first, and nobody is broken off.

#include <cstdio>

#include "tests/sim/simulator_testing.h"

namespace troupe::sim {
namespace simulator_test {

Fault drain(int32_t node, double at_s, double for_s) {
  return {.kind = Fault::Kind::kDrain, .at_s = at_s, .target = node, .for_s = for_s};
}

TEST(SimulatorDrain, ANodeGoesWithoutBreakingAnybodyOff) {
  for (const int gateways : {1, 3}) {
    SimulationOptions options = options_of(4, gateways);
    options.conservation_every = 512;
    options.network_ms = 1;
    options.faults = {drain(1, 20, 30)};
    const Result result = run_personas(kSmall, options);
    EXPECT_EQ(result.lost, 0);
    EXPECT_EQ(result.faults.resumed, 0) << "its streams end where they are";
    const auto& work = result.node_series.at(1).work_per_s;
    EXPECT_GT(work.at(19), 0);
    EXPECT_EQ(work.at(45), 0) << "it is gone";
  }
}

// A request that is not done by then goes on elsewhere.
TEST(SimulatorDrain, ItsTimeIsBounded) {
  PersonaWorkload workload = kSmall;
  workload.output_tokens = 1500;
  workload.rate = 10;
  SimulationOptions options = options_of(4, 2);
  options.conservation_every = 512;
  options.faults = {drain(1, 20, 2)};
  const Result result = run_personas(workload, options);
  EXPECT_EQ(result.lost, 0);
  EXPECT_GT(result.faults.resumed, 0);
  EXPECT_EQ(result.node_series.at(1).work_per_s.at(23), 0);
}

TEST(SimulatorDrain, GatewaysAndOtherNodesMayFailMeanwhile) {
  SimulationOptions options = options_of(4, 2);
  options.conservation_every = 256;
  options.faults = *parse_faults(
      "{\"at_s\": 20, \"drain\": 1, \"for_s\": 10}\n{\"at_s\": 20.1, \"restart_gateway\": 0}\n"
      "{\"at_s\": 20.2, \"kill\": 2}\n{\"at_s\": 20.3, \"drain\": 3, \"for_s\": 0.2}\n"
      "{\"at_s\": 25, \"return\": 2}\n{\"at_s\": 31, \"return\": 1}\n{\"at_s\": 32, \"drain\": 2, \"for_s\": "
      "9}",
      "f");
  const Result result = run_personas(kSmall, options);
  EXPECT_EQ(result.lost, 0);
  EXPECT_GT(result.node_series.at(1).work_per_s.at(50), 0) << "it came back";
  EXPECT_EQ(result.node_series.at(3).work_per_s.at(50), 0);
}

// The next turns of its conversations, and its personas' next requests, find what they would have found.
TEST(SimulatorDrain, WhatItHadIsFoundElsewhere) {
  const PersonaWorkload workload{.personas = 100,
                                 .card_tokens = 1000,
                                 .turns = 8,
                                 .think_s = 4,
                                 .output_tokens = 80,
                                 .rate = 40,
                                 .duration_s = 60};
  double calm = 0, drained = 0, killed = 0;
  for (int seed = 1; seed <= 3; ++seed) {
    SimulationOptions options = options_of(4, 2);
    options.seed = static_cast<uint64_t>(seed);
    const auto hits = [&] {
      const Result result = run_personas(workload, options);
      EXPECT_EQ(result.lost, 0);
      double in_all = 0;
      for (size_t s = 30; s < 40; ++s) {
        in_all += static_cast<double>(result.seconds.at(s).hit_tokens) /
                  static_cast<double>(result.seconds.at(s).prompt_tokens) / 10;
      }
      return in_all / 3;
    };
    calm += hits();
    options.faults = {drain(1, 30, 20)};
    drained += hits();
    options.faults = {{.kind = Fault::Kind::kKill, .at_s = 30, .target = 1}};
    killed += hits();
  }
  std::printf("hits of 10 s: calm %.3f, a node drains %.3f, a node dies %.3f\n", calm, drained, killed);
  EXPECT_LT(calm - drained, 0.01);
  EXPECT_LT(calm - drained, 0.4 * (calm - killed));
}

}  // namespace simulator_test
}  // namespace troupe::sim
