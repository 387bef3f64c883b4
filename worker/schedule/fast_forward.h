#pragma once

// A scheduler's fast way through time, for a simulator that computes nothing. Where decodes are counted
// (SchedulerConfig::Simulation, counted_decodes.h) and a step holds nothing else, the steps after it bring
// each of them one more token and change nothing besides, until a request ends or blocks have to be evicted.
// Such steps are passed at once, whatever their number. Reached by Scheduler::fast_forward(); nothing of it
// concerns a worker. Pure; not thread-safe.

#include <cstdint>

#include "worker/kv/types.h"

namespace troupe {

struct PlannedStep;
struct SchedulerState;

class FastForward {
 public:
  // Both must outlive this.
  FastForward(SchedulerState* state, PlannedStep* step) : state_(*state), step_(*step) {}

  // The number of steps, beginning with the one in flight, that bring nothing but a token for each counted
  // decode as long as no request is added. It is a lower bound; 0 where decodes are listed, or where prefill
  // is limited for their sake (tpot_budget), since each step's cost is learned then.
  int64_t uneventful_steps() const;
  // That many steps were computed and the next one is in flight: as if by commit() and plan() of each.
  // REQUIRES: steps <= uneventful_steps().
  void pass(int64_t steps);

  // Prefetches the memory that the end of the next step reads first: of a fleet's many nodes one is far from
  // the processor's cache when its turn comes. The counted decode that ends next, 0 where there is none.
  RequestId fetch_ahead() const;

 private:
  SchedulerState& state_;
  PlannedStep& step_;
};

}  // namespace troupe
