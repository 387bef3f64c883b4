#include "worker/sim_device/sim_runner.h"

#include <algorithm>
#include <chrono>

namespace troupe {

namespace {

// The longest delay behind its due times that a worker catches up. A process that was stopped for seconds
// does not make up for it with steps that take no time.
constexpr Duration kLagMax = std::chrono::milliseconds(20);

}  // namespace

Status SimRunner::launch(const Batch& batch, const StepDraws& /*draws*/) {
  const StepLoad load = step_load(batch);
  TimePoint begin = clock_.now();
  // A decoding request was in the last step, so there was no pause between the two.
  if (load.decode_count > 0) begin = std::clamp(last_end_, begin - kLagMax, begin);
  const double ns = static_cast<double>(step_duration(options_.costs, load).count()) / options_.speed;
  last_end_ = faults_.wait_step_end(begin, Duration(static_cast<int64_t>(ns)));

  tokens_.clear();
  for (const BatchItem& item : batch.items) {
    if (!item.samples) continue;
    tokens_.push_back(options_.filler[static_cast<size_t>(item.sample_position) % options_.filler.size()]);
  }
  return absl::OkStatus();
}

}  // namespace troupe
