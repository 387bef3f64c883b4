#pragma once

// The state of a scheduler that outlives a step. Its parts work on it: StepPlanner (decides what is computed
// next), StepCommit (takes in what came of a step) and FastForward (many steps at once, for a simulator).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

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

  // Names that a request which has ended leaves behind: of its blocks in the cache.
  struct Remains {
    std::vector<Hash128> block_hashes;
    std::vector<TokenId> ids;
    Hash128 salt, pin;
    std::unique_ptr<Remains> companion = nullptr;
  };
  // The request ends and is destroyed, as is its companion. `complete`: it came to its end, so what it asked
  // to pin is pinned.
  Remains end(ScheduledRequest& request, bool complete);
  // The request's answer ends behind its first `kept_count` tokens again; it goes on from there.
  void rewind(ScheduledRequest& request, int32_t kept_count);
  // Its KV is no good: it is neither pinned nor found from now on.
  void discard(const Remains& remains);
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

 private:
  Remains end_one(ScheduledRequest& request, bool complete);
  Status verify_partners() const;
};

}  // namespace troupe
