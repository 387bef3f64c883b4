#pragma once

// All requests of one scheduler and the queue that each is in: it waits, or it runs; those of the running
// ones that still compute their prompt are listed once more. Every queue is in order of arrival: its front is
// the oldest, its back the youngest, which is preempted first. Requests in the background count as younger
// than all others. Pure; not thread-safe.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/status.h"
#include "worker/schedule/block_tables.h"
#include "worker/schedule/counted_decodes.h"
#include "worker/schedule/request.h"
#include "worker/schedule/scheduler_config.h"
#include "worker/schedule/scheduler_stats.h"

namespace troupe {

class RequestQueues {
 public:
  using Request = ScheduledRequest;
  using Queue = std::vector<Request*>;

  // The arguments must outlive this.
  RequestQueues(const SchedulerConfig* config, BlockTables* tables, CountedDecodes* counted);

  const Queue& running() const { return running_; }
  const Queue& prefilling() const { return prefilling_; }
  const Queue& waiting() const { return waiting_; }
  const absl::flat_hash_map<RequestId, std::unique_ptr<Request>>& all() const { return requests_; }
  Request* find(RequestId id) const;

  // Requests that may run at once: at least one token a step for each, so decodes cannot starve a prefill.
  size_t running_limit() const;
  int64_t running_new_count() const { return running_new_count_; }  // sum of their max_new_count
  int32_t background_count() const { return background_count_; }    // of all requests

  // The request waits. Sets its arrival_index.
  Request& add(std::unique_ptr<Request> request);
  // Looks a waiting request up in the prefix cache again.
  void lookup(Request& request);
  void set_pending(Request& request, int64_t token_count);
  // A waiting request that was given its blocks runs and prefills. It stays in waiting() until
  // drop_started().
  void start(Request& request);
  // Removes those of the first `count` waiting requests that have been started.
  void drop_started(size_t count);
  // Its prompt is computed: it decodes from now on.
  void finish_prefill(Request& request);
  // The request, which runs, gives back its blocks and waits again.
  void preempt(Request& request);
  // Allows the request, without its partner, fewer tokens to emit.
  void cut(Request& request, int32_t token_count);
  // In two steps, since what it has emitted and computed is of interest between them: out of its queue, with
  // its lengths up to date; and destroyed.
  void leave(Request& request);
  void erase(Request& request);

  // Fills in the counts of requests and of pending tokens.
  void describe(SchedulerStats& stats) const;
  // Walks everything and checks order, membership and sums.
  Status verify() const;

 private:
  void stop_running(Request& request);
  void count_background(const Queue& queue, int32_t& count, int64_t& pending_tokens) const;
  Status verify_waiting() const;
  Status verify_running() const;

  const SchedulerConfig* config_;
  BlockTables* tables_;
  CountedDecodes* counted_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_;
  Queue running_, prefilling_, waiting_;
  int64_t running_new_count_ = 0;
  int64_t pending_tokens_ = 0;  // sum of the requests' pending_tokens
  int32_t background_count_ = 0;
  uint64_t next_arrival_index_ = 0;
};

}  // namespace troupe
