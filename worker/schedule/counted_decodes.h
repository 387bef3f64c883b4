#pragma once

// The decodes of a simulator (SchedulerConfig::Simulation::count_decodes): counted, not listed. Each of them
// goes on by one token a step, so nothing is stored per step and request: the step at which a request ends is
// known when it begins to decode, and so is, for every step, how many requests then need another block. A
// step costs what happens in it, not how many requests decode, and steps in which nothing happens are passed
// at once.
//
// Blocks: a request that is counted owns no new blocks. BlockTables reserves as many as it has computed,
// which keeps the number of free blocks right, and hands them over when it leaves. Pure; not thread-safe.

#include <cstdint>
#include <vector>

#include "absl/container/btree_set.h"
#include "worker/schedule/block_tables.h"
#include "worker/schedule/request.h"

namespace troupe {

class CountedDecodes {
 public:
  // `tables` must outlive this.
  CountedDecodes(int32_t block_size, BlockTables* tables);

  // `request` decodes from the next step on. REQUIRES: all its known ids but the last are computed, and it
  // has more to emit.
  void join(ScheduledRequest& request);
  // `request` decodes no more. Its lengths and its blocks are right afterwards.
  void leave(ScheduledRequest& request);
  // Brings computed_count and known_count of a request that joined up to date.
  void materialize(ScheduledRequest& request) const;

  int32_t count() const { return count_; }
  // Sum of the tokens that they attend to in the next step, their own included.
  int64_t context_count() const { return computed_sum_ + count_; }
  // Reserves the blocks that the next step needs. False: one is missing; preempt a request and ask again.
  bool reserve_blocks();
  // Blocks reserved for a step that was not computed yet.
  int32_t reserved_count() const { return reserved_count_; }

  // The next step was computed. Appends the requests that have emitted all they may, by arrival; they are
  // still to leave. REQUIRES: reserve_blocks() returned true.
  void advance(std::vector<ScheduledRequest*>& ended);
  // How many of the next steps end no request and evict no block. REQUIRES: count() > 0.
  int64_t uneventful_steps() const;
  // That many steps were computed, and the next one is in flight. REQUIRES: steps <= uneventful_steps().
  void pass(int64_t steps);

  // Prefetches the memory of the request that ends first and returns its id; 0: nothing decodes.
  RequestId fetch_ahead() const;

 private:
  struct End {
    int64_t step = 0;            // after which it has ended
    uint64_t arrival_index = 0;  // the request's, as is the id: comparing ends does not touch its memory
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
  // Requests whose computed ids end with a block: the next step needs another block for each of them.
  int32_t at_block_end() const { return at_block_end_[slot_of(step_)]; }
  // The same, summed over all steps behind the next one, up to the `steps`-th.
  int64_t at_block_end_within(int64_t steps) const;
  void go_on(int64_t steps) {
    step_ += steps;
    computed_sum_ += steps * count_;
  }

  BlockTables* tables_;
  int64_t step_ = 0;
  int32_t count_ = 0;
  int64_t computed_sum_ = 0;
  int32_t reserved_count_ = 0;
  std::vector<int32_t> at_block_end_;  // by step modulo block size
  absl::btree_set<End> ends_;
};

}  // namespace troupe
