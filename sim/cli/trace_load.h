#pragma once

// The load that a trace brings, measured by reading it once: for it nodes are sized, and by it the search
// for their number begins.

#include "common/core/status.h"
#include "sim/sizing/sizing.h"
#include "sim/trace/trace.h"
#include "worker/schedule/node_profile.h"

namespace troupe::sim {

struct TraceLoad {
  int64_t requests = 0;
  double duration_s = 0;
  double rate = 0;                              // requests/s, mean
  double prompt_tokens = 0, output_tokens = 0;  // means
  double shared = 0;  // share of the prompt tokens that one cache which forgets nothing would find
};
// Errors: the source's, or fewer than two requests.
StatusOr<TraceLoad> measure_load(RequestSource& source);

// Fewer nodes cannot do the work, however well it is routed and batched: every missed token computed once and
// every answer in the largest batch. At least 1. REQUIRES: a load of measure_load().
int64_t nodes_at_least(const TraceLoad& load, const NodeProfile& profile);

}  // namespace troupe::sim
