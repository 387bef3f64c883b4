#pragma once

// Runs steps without a model: each takes as long as a node's profile says and yields filler tokens. Ends of
// steps are absolute: the next step begins where the last one was due, so the engine's own time between two
// steps and the overshoot of sleeps are not added to the node's figures.

#include <vector>

#include "common/core/time.h"
#include "worker/engine/step_runner.h"
#include "worker/schedule/step_time.h"
#include "worker/sim_device/fault_injector.h"

namespace troupe {

class SimRunner final : public StepRunner {
 public:
  struct Options {
    StepCosts costs;
    double speed = 1;             // multiple of the profile's speed
    std::vector<TokenId> filler;  // not empty; token at position p of an answer: filler[p mod size]
  };
  // `faults` outlives this.
  SimRunner(Options options, SimFaults& faults) : options_(std::move(options)), faults_(faults) {}

  Status launch(const Batch& batch, const StepDraws& draws) override;
  StepOutput collect() override { return {tokens_}; }

 private:
  const Options options_;
  SimFaults& faults_;
  const SteadyClock clock_;
  TimePoint last_end_ = TimePoint::min();
  std::vector<TokenId> tokens_;
};

}  // namespace troupe
