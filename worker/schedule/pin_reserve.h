#pragma once

// Keeps room beside pinned prefixes. Pins take memory from every request, but never so much that a request
// that was accepted could not run: a request is accepted if it fits beside all that is pinned or may be when
// the present requests end, and a pin if all present requests fit beside it. The blocks that a request shares
// with a pin cost it nothing; when that pin goes, its room is free for exactly as much. So some request can
// always go on: the oldest that runs, once all younger ones have given way. Pure; not thread-safe.

#include <cstdint>

#include "common/core/status.h"
#include "worker/schedule/block_tables.h"
#include "worker/schedule/request_queues.h"
#include "worker/schedule/scheduler_config.h"

namespace troupe {

class PinReserve {
 public:
  // The arguments must outlive this.
  PinReserve(const SchedulerConfig* config, const BlockTables* tables, RequestQueues* queues)
      : config_(config), tables_(tables), queues_(queues) {}

  // Admits a request that waits for the first time: kInvalidArgument if it does not fit beside what is
  // pinned, kResourceExhausted if its pin would leave no room for another request. Cuts the answers of those
  // that may be cut. Whatever it returns, drop() must follow when the request ends.
  Status admit(ScheduledRequest& request);
  // The request ends: nothing is reserved for its pin any more.
  void drop(const ScheduledRequest& request) { reserved_count_ -= request.pin_blocks; }

 private:
  // Blocks that are pinned, or may be when the present requests end.
  int32_t kept_count() const { return tables_->cache().pinned_count() + reserved_count_; }
  int64_t most_tokens(const ScheduledRequest& request, int32_t kept_blocks) const;
  int64_t surplus_of(const ScheduledRequest& request, int32_t kept_blocks) const;
  void cut(ScheduledRequest& request, int64_t token_count);
  Status fit(ScheduledRequest& request);
  Status fit_others(const ScheduledRequest& newcomer, bool cut);

  const SchedulerConfig* config_;
  const BlockTables* tables_;
  RequestQueues* queues_;
  int32_t reserved_count_ = 0;  // blocks that requests with a pin may pin
};

}  // namespace troupe
