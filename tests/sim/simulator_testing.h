#pragma once

// Shared helpers for tests of whole simulations.

#include <gtest/gtest.h>

#include "sim/fleet/simulator.h"
#include "sim/workload/workload.h"

namespace troupe::sim {
namespace simulator_test {

inline SimulationOptions options_of(int32_t nodes, int32_t gateways = 1) {
  SimulationOptions options;
  options.profile = *load_node_profile("study");
  options.nodes = nodes;
  options.gateways = gateways;
  return options;
}

inline Result run(RequestSource& source, const SimulationOptions& options) {
  auto result = simulate(source, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : Result{};
}

inline Result run_personas(const PersonaWorkload& workload, const SimulationOptions& options) {
  auto source = PersonaSource::make(workload, options.seed);
  EXPECT_TRUE(source.ok()) << source.status();
  return run(**source, options);
}

inline const PersonaWorkload kSmall{
    .personas = 50, .card_tokens = 500, .turns = 4, .think_s = 5, .rate = 40, .duration_s = 60};

}  // namespace simulator_test
}  // namespace troupe::sim
