#pragma once

// Steps without a model: they take as long as a node's profile says and give filler tokens. Ends of steps are
// absolute: the next one begins where the last one was due, so what the engine itself takes between two
// steps, and what sleeping overshoots, is not added to the node's own figures.

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
    double speed = 1;             // a node so many times as fast
    std::vector<TokenId> filler;  // not empty; what position p of an answer says: filler[p mod size]
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
