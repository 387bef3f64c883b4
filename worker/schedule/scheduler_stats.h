#pragma once

// The numbers that a scheduler reports: gauges, and totals since its start.

#include <cstdint>

namespace troupe {

struct SchedulerStats {
  int32_t running = 0, waiting = 0;
  int64_t pending_prefill_tokens = 0;  // uncached prompt tokens not computed yet, waiting ones included
  // The part of these that is in the background and gives way to every other request.
  int32_t background_running = 0, background_waiting = 0;
  int64_t background_pending_tokens = 0;
  int32_t blocks_total = 0, blocks_free = 0, blocks_cached = 0, blocks_used = 0;
  int32_t blocks_pinned = 0;  // of those that are used
  int64_t preemptions_total = 0;
  int64_t computed_tokens_total = 0;       // all ids whose KV own steps computed
  int64_t prefix_query_tokens_total = 0;   // tokens looked up at first admission
  int64_t prefix_hit_tokens_total = 0;     // of those, found
  int64_t prefix_copied_tokens_total = 0;  // of those, in a block that was copied since only part of it fits
  int64_t evicted_blocks_total = 0;
  int64_t evicted_shared_blocks_total = 0;  // of those, used by several sessions
  int64_t budget_limited_steps_total = 0;   // steps whose prefill tpot_budget cut
};

}  // namespace troupe
