#pragma once

// Decodes that nobody computes (SchedulerConfig::itemize_decodes off). All of them go on by one token every
// step, so nothing need be counted up: a request is kept by the step at which something happens to it, when
// it fills a block, needs one, or ends. A step costs what happens in it, not what runs. Pure; not
// thread-safe.

#include <cstdint>
#include <vector>

#include "absl/container/btree_set.h"
#include "worker/schedule/request.h"

namespace troupe {

class DecodeClock {
 public:
  explicit DecodeClock(int32_t block_size);

  // REQUIRES: it decodes (all its known ids but the last are computed) and has more to emit.
  void join(ScheduledRequest& request);
  // Its lengths are right afterwards.
  void leave(ScheduledRequest& request);
  // Brings computed_count and known_count of one that joined up to date.
  void settle(ScheduledRequest& request) const;

  int32_t count() const { return count_; }
  // Σ of the tokens that they attend to in the next step, their own included.
  int64_t context_count() const { return computed_sum_ + count_; }
  // Those whose computed ids end with a block: it has just been filled, and the next step needs another one.
  // By arrival; join() and leave() change the list.
  const std::vector<ScheduledRequest*>& at_block_end() const { return at_block_end_in(0); }
  // The step was computed.
  void advance();
  // Those who have emitted all they may, by arrival; they are still to leave. Appends.
  void ended(std::vector<ScheduledRequest*>& out) const;

 private:
  struct End {
    int64_t step = 0;  // after which it has ended
    ScheduledRequest* request = nullptr;
    bool operator<(const End& other) const {
      return step != other.step ? step < other.step : request->arrival_index < other.request->arrival_index;
    }
  };
  std::vector<ScheduledRequest*>& slot(const ScheduledRequest& request);
  const std::vector<ScheduledRequest*>& at_block_end_in(int64_t steps) const {
    return due_[static_cast<size_t>(step_ + steps) % due_.size()];
  }
  void fetch_ahead() const;
  End end_of(ScheduledRequest& request) const;

  int64_t step_ = 0;
  int32_t count_ = 0;
  int64_t computed_sum_ = 0;
  std::vector<std::vector<ScheduledRequest*>> due_;  // by step modulo block size, at which they end a block
  absl::btree_set<End> ends_;
};

}  // namespace troupe
