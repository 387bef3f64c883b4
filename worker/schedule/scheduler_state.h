#pragma once

// The state of a scheduler that outlives a step. Its parts work on it: StepPlanner (decides what is computed
// next), StepCommit (takes in what came of a step) and FastForward (many steps at once, for a simulator).

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "common/core/status.h"
#include "worker/schedule/block_tables.h"
#include "worker/schedule/counted_decodes.h"
#include "worker/schedule/output_length_predictor.h"
#include "worker/schedule/pin_reserve.h"
#include "worker/schedule/request_queues.h"
#include "worker/schedule/scheduler_config.h"
#include "worker/schedule/scheduler_stats.h"
#include "worker/schedule/set_work.h"
#include "worker/schedule/step_cost.h"

namespace troupe {

struct SchedulerState {
  explicit SchedulerState(const SchedulerConfig& c);
  SchedulerState(const SchedulerState&) = delete;
  SchedulerState& operator=(const SchedulerState&) = delete;

  // The request ends and is destroyed. `complete`: it came to its end, so what it asked to pin is pinned.
  void end(ScheduledRequest& request, bool complete);
  // Brings the gauges of `stats` up to date; the totals always are.
  void refresh_stats();
  Status verify() const;

  const SchedulerConfig config;
  SchedulerStats stats;
  BlockTables tables;
  CountedDecodes counted;
  RequestQueues queues;
  PinReserve pins;
  OutputLengthPredictor lengths;
  SetWork set_work;
  StepCost cost;
};

}  // namespace troupe
