#pragma once

// Decodes that nobody computes (SchedulerConfig::itemize_decodes off). All of them go on by one token every
// step, so nothing need be counted up: of a request is known at which step it ends, and of each step how many
// requests then need another block. A step costs what happens in it, not what runs, and steps in which
// nothing happens can be gone through at once. Pure; not thread-safe.

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
  // How many have computed ids that end with a block: the next step needs another one for each of them.
  int32_t at_block_end() const { return at_block_end_[slot_of(step_)]; }
  // The same of all steps behind the next one, up to the `steps`-th.
  int64_t at_block_end_within(int64_t steps) const;
  // So many of the steps to come end before anybody does. REQUIRES: count() > 0.
  int64_t steps_before_end() const { return ends_.begin()->step - step_ - 1; }
  // So many steps were computed. REQUIRES: nobody has ended before the last of them.
  void advance(int64_t steps = 1);
  // Fetches the memory of the one who ends first, and says who it is; 0: there is none.
  RequestId fetch_ahead() const;
  // Those who have emitted all they may, by arrival; they are still to leave. Appends.
  void ended(std::vector<ScheduledRequest*>& out) const;

 private:
  struct End {
    int64_t step = 0;            // after which it has ended
    uint64_t arrival_index = 0;  // the request's, as is the id: it is looked at without its memory
    RequestId id = 0;
    ScheduledRequest* request = nullptr;
    bool operator<(const End& other) const {
      return step != other.step ? step < other.step : arrival_index < other.arrival_index;
    }
  };
  size_t slot_of(int64_t step) const {
    const auto size = static_cast<int64_t>(at_block_end_.size());
    return static_cast<size_t>((step % size + size) % size);
  }
  End end_of(ScheduledRequest& request) const;

  int64_t step_ = 0;
  int32_t count_ = 0;
  int64_t computed_sum_ = 0;
  std::vector<int32_t> at_block_end_;  // by step modulo block size
  absl::btree_set<End> ends_;
};

}  // namespace troupe
