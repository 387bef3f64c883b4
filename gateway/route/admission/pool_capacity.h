#pragma once

// Capacity of a model's workers in concurrent answers (a request asks for n): as many as their batches hold
// and a few to follow at once, so that no worker idles while its next request is on its way. Requests beyond
// that wait in the gateway, where their order can be fair. A worker whose own queue is longer than that is
// full with fewer: its KV memory, or its prompts, hold it up, not its batch.

#include <cstdint>
#include <limits>
#include <string_view>

#include "common/core/status.h"
#include "gateway/route/fleet/load_tracker.h"
#include "gateway/route/fleet/view.h"

namespace troupe {
class SettingsSchema;
}

namespace troupe::route {

struct PoolRoomOptions {
  double fill = 1.25;              // factor on a worker's max_num_seqs, at least 1; 0: workers are never full
  int64_t worker_requests = 0;     // for every worker, instead; 0: by its reports
  int64_t foreign_requests = 256;  // for one that reports no max_num_seqs; 0: it is never full
};
// Describes admission.worker_fill, .worker_requests, .foreign_worker_requests. `options` must outlive the
// schema.
void describe(SettingsSchema& schema, PoolRoomOptions& options);
// The error names the key.
Status check(const PoolRoomOptions& options);

inline constexpr int64_t kEndlessRoom = std::numeric_limits<int64_t>::max();

int64_t node_room(const PoolRoomOptions& options, const NodeLoad& load);
// Room for this gateway, one of `gateways`: what the others leave, and at least its part. At least 1;
// unlimited without workers, or with one that is never full (no request waits for an absent worker).
int64_t pool_room(const PoolRoomOptions& options, const ClusterView& view, const LoadTracker& loads,
                  std::string_view model, int64_t gateways);

}  // namespace troupe::route
