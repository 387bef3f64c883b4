#pragma once

// A step as it was planned: what the runner is given and what its end is reckoned by.

#include <utility>
#include <vector>

#include "common/core/time.h"
#include "worker/schedule/batch.h"
#include "worker/schedule/step_time.h"

namespace troupe {

struct PlannedStep {
  Batch batch;
  std::vector<ScheduledRequest*> requests;  // whose items those of the batch are, by the same index
  StepLoad load;
  TimePoint planned_at{};
  bool in_flight = false;  // it is not empty, and was neither computed nor abandoned

  // An empty step that allocates from the memory of an old one.
  static PlannedStep in_memory_of(PlannedStep& old, TimePoint now) {
    PlannedStep step;
    step.batch.items = emptied(old.batch.items);
    step.batch.copies = emptied(old.batch.copies);
    step.batch.preempted = emptied(old.batch.preempted);
    step.requests = emptied(old.requests);
    step.planned_at = now;
    return step;
  }

 private:
  template <typename T>
  static std::vector<T> emptied(std::vector<T>& old) {
    old.clear();
    return std::move(old);
  }
};

}  // namespace troupe
