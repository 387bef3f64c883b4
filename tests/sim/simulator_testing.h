#pragma once

// Shared helpers for tests of whole simulations.

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "sim/fleet/simulator.h"
#include "sim/workload/workload.h"

namespace troupe::sim {
namespace simulator_test {

class ListSource final : public RequestSource {
 public:
  explicit ListSource(std::vector<TraceRequest> requests) : requests_(std::move(requests)) {}
  StatusOr<bool> next(TraceRequest& out) override {
    if (at_ == requests_.size()) return false;
    out = requests_[at_++];
    return true;
  }

 private:
  std::vector<TraceRequest> requests_;
  size_t at_ = 0;
};

inline TraceRequest request(double at_s, int32_t input, int32_t output, uint64_t content = 1) {
  TraceRequest r;
  r.at = Duration(static_cast<int64_t>(at_s * 1e9));
  r.input_tokens = input;
  r.output_tokens = output;
  r.block_tokens = 16;
  for (int32_t i = 0; i < input / 16; ++i) r.blocks.push_back(content * 1000 + static_cast<uint64_t>(i));
  for (int32_t i = input / 16; i < (input + output) / 16; ++i)
    r.output_blocks.push_back(content * 1000 + 500 + static_cast<uint64_t>(i));
  r.set = r.session = content;
  r.prefix_tokens = input;
  return r;
}

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
