#pragma once

// What to measure routers by: the share of prompt tokens that one cache would have had. `infinite` forgets
// nothing, and no router can beat it; `pooled LRU` is all nodes' KV memory in one piece, least recently used
// out first, never its own prefix before what hangs on it. A fleet whose nodes evict so, too, hardly finds
// more, one that chooses better what to forget can. Where KV memory is the limit (persona chat: the tails of
// live sessions dwarf the personas) only the second means anything. Requests are taken as served at once, one
// after the other.
//
// Ids are cumulative, so blocks form a tree, which is kept in runs: a request costs the few runs it goes
// through, and a block seen costs four bytes. (A prompt's last one that is not full: a dozen and a half.)

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/trace/trace.h"
#include "worker/kv/radix_index.h"

namespace troupe::sim {

class PooledLru {
 public:
  // `capacity_tokens` < 0: without a bound.
  explicit PooledLru(int64_t capacity_tokens) : capacity_tokens_(capacity_tokens) {}
  // Prompt tokens found by each of the two.
  struct Hits {
    int64_t pooled = 0, infinite = 0;
  };
  // Then the prompt's and the answer's blocks are in, and the least recently used ones out.
  Hits serve(const TraceRequest& request);
  // From now on; what no longer fits goes at once.
  void set_capacity(int64_t tokens) {
    capacity_tokens_ = tokens;
    evict();
  }
  int64_t tokens_held() const { return tokens_; }
  size_t run_count() const { return runs_.size(); }

 private:
  static constexpr int32_t kNone = -1;
  // A stretch of blocks that only ever came one after the other, so it is as long as can be: requests touch
  // it whole, and what hangs on it hangs on its end. Of what forgets nothing it is all, of the pool the first
  // `pooled` blocks; and those are in its list.
  struct Run {
    uint32_t* ids = nullptr;       // (size), the low halves; in a slice of ids_
    uint32_t size = 0;             // blocks
    uint32_t room = 0;             // of the slice
    uint32_t first = 0, last = 0;  // of ids, for who looks at nothing else of it
    int32_t parent = kNone;        // run before it
    int32_t tokens = 0;            // of a block
    int32_t pooled = 0;
    int32_t newer = kNone, older = kNone;
    bool grows = true;        // nothing hangs on it
    bool is_partial = false;  // a block that is not full, and hangs on nothing
    uint64_t partial_id = 0;  // its id
  };
  // Walking down a request's blocks.
  struct Walk {
    int32_t run = kNone;  // that ended last
    bool all_pooled = true;
    bool all_seen = true;
    Hits hits;
  };
  Run& run(int32_t index) { return runs_[static_cast<size_t>(index)]; }
  static size_t common_count(const Run& known, std::span<const uint64_t> ids);
  void fetch_neighbours(int32_t index) const;
  // Mixed, for a trace's ids may be small numbers.
  static Hash128 key_of(int32_t parent, uint32_t id) {
    return {0, (uint64_t{static_cast<uint32_t>(parent)} << 32 | id) * 0x9e3779b97f4a7c15u};
  }
  int32_t find_child(int32_t parent, uint32_t id) const;
  void follow(Walk& walk, std::span<const uint64_t> ids, int32_t tokens);
  void add(Walk& walk, std::span<const uint64_t> ids, int32_t tokens);
  void append(Run& run, std::span<const uint64_t> ids);
  int32_t new_partial(uint64_t id, int32_t tokens);
  void add_partial(Hits& hits, const Walk& before, uint64_t id, int32_t tokens);
  uint32_t* slice_of(uint32_t size);
  int32_t split(int32_t index, int32_t parent, size_t count);
  void touch(int32_t index);
  void unlink(int32_t index);
  void push_newest(int32_t index);
  void evict();

  int64_t capacity_tokens_;
  int64_t tokens_ = 0;
  RadixIndex by_key_;  // by key_of() the run before it and its first id
  // Last blocks of prompts, not full, by id: all that were seen, with their runs if they are pooled.
  absl::flat_hash_map<uint64_t, int32_t> partials_;
  std::deque<Run> runs_;
  std::vector<int32_t> spare_runs_;  // of partial blocks that left the pool
  // Slices for ids; what runs have outgrown is never more than what they have.
  std::vector<std::unique_ptr<uint32_t[]>> ids_;
  uint32_t* next_slice_ = nullptr;
  uint32_t slice_room_ = 0;    // behind it
  std::vector<int32_t> path_;  // scratch: a request's runs, head first
  int32_t newest_ = kNone, oldest_ = kNone;
};

}  // namespace troupe::sim
