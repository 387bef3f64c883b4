#include "worker/schedule/fast_forward.h"

#include "common/core/check.h"
#include "worker/schedule/planned_step.h"
#include "worker/schedule/scheduler_state.h"

namespace troupe {

int64_t FastForward::uneventful_steps() const {
  const SchedulerConfig& config = state_.config;
  const RequestQueues& queues = state_.queues;
  if (!step_.in_flight || !step_.batch.items.empty() || state_.counted.count() == 0) return 0;
  if (config.tpot_budget > Duration::zero() || !queues.prefilling().empty()) return 0;
  // No request joins a static batch, and only requests in the background would leave it for one that waits.
  const bool closed = config.batching == Batching::kStatic && queues.background_count() == 0;
  if (!queues.waiting().empty() && !closed) return 0;
  if (state_.tables.residency().has_changes()) return 0;
  return state_.counted.uneventful_steps();
}

void FastForward::pass(int64_t steps) {
  TROUPE_CHECK(steps <= uneventful_steps(), "pass() of steps in which something happens");
  if (steps == 0) return;
  state_.counted.pass(steps);
  state_.stats.computed_tokens_total += steps * state_.counted.count();
  step_.batch.preempted.clear();
  step_.batch.counted_context_tokens = state_.counted.context_count();
  state_.refresh_stats();
}

RequestId FastForward::fetch_ahead() const {
  return state_.counted.fetch_ahead();
}

}  // namespace troupe
