#include "worker/schedule/background_prefill.h"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

// The background gets one part in so many of a step's tokens. Beside others it makes a step that decodes half
// as long again (on the GPUs and CPUs of configs/sim; with all that the others leave a step took five times
// as long, and requests that came meanwhile went elsewhere, where their conversations were not cached). Where
// nothing else runs, a request that comes waits for what is under way.
constexpr int32_t kShareBeside = 32;
constexpr int32_t kShareAlone = 4;

}  // namespace

int32_t BackgroundPrefill::token_share(bool alone) const {
  const SchedulerConfig& config = state_.config;
  return std::max(config.max_num_batched_tokens / (alone ? kShareAlone : kShareBeside), config.block_size);
}

bool BackgroundPrefill::has_turn(const Batch& batch) const {
  const RequestQueues& queues = state_.queues;
  return state_.config.batching == Batching::kMerged || !batch.empty() ||
         queues.prefilling().size() == queues.running().size();
}

void BackgroundPrefill::end_plan(bool no_room) {
  makes_way_ = holds_up_others(no_room);
}

bool BackgroundPrefill::take_makes_way() {
  return std::exchange(makes_way_, false);
}

bool BackgroundPrefill::holds_up_others(bool no_room) const {
  const RequestQueues& queues = state_.queues;
  if (queues.waiting().empty() || queues.waiting().front()->in_background()) return false;
  if (queues.running().empty() || !queues.running().back()->in_background()) return false;
  // A static batch gives way when nothing else is left in it.
  if (state_.config.batching == Batching::kStatic) return queues.running().front()->in_background();
  const bool full = queues.running().size() >= queues.running_limit() || state_.tables.available_count() == 0;
  return no_room || full;
}

}  // namespace troupe
