#pragma once

// The rules of requests in the background, which compute prefixes ahead of use; StepPlanner applies them.
// Such a request counts as younger than every other, whenever it came: it is admitted last, gets a few of the
// prefill tokens that the others leave, and is preempted first. Where another request finds no place beside
// it, it makes way at the next step; what it has computed stays cached, so little is lost. Pure; not
// thread-safe.

#include <cstdint>

#include "worker/schedule/scheduler_state.h"

namespace troupe {

class BackgroundPrefill {
 public:
  // `state` must outlive this.
  explicit BackgroundPrefill(const SchedulerState* state) : state_(*state) {}

  bool is_empty() const { return state_.queues.background_count() == 0; }
  // Tokens that it may have in a step; `alone`: nothing else is in it.
  int32_t token_share(bool alone) const;
  // Whether a request in the background may be admitted to a step that holds this so far. Where prompts and
  // decodes take turns, prompts in the background take no turn from decodes.
  bool has_turn(const Batch& batch) const;

  // At the end of a plan: whether the requests in the background that run have to make way at the next one,
  // for the sake of one that waits. In the step that is planned they may have a part already. `no_room`: a
  // request that is not in the background did not fit.
  void end_plan(bool no_room);
  // At the beginning of a plan, once: whether they make way now.
  bool take_makes_way();

 private:
  bool holds_up_others(bool no_room) const;

  const SchedulerState& state_;
  bool makes_way_ = false;
};

}  // namespace troupe
