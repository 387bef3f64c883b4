#pragma once

// Bounds to measure routers by: the share of prompt tokens that one cache would have had. `infinite` forgets
// nothing, and no router can beat it; `pooled LRU` is all nodes' KV memory in one piece, least recently used
// out first, never a prefix before its continuations. A fleet whose nodes evict so, too, hardly finds more;
// one with a better eviction can. Where KV memory is the limit (persona chat: the histories of live sessions
// dwarf the personas) only the second means anything. Requests are taken as served at once, one after the
// other.
//
// Ids are cumulative, so blocks form a tree, which is kept in runs: a request costs the few runs it goes
// through, and a block seen costs four bytes. (A prompt's partly filled last one: a dozen and a half.)

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
  // `capacity_tokens` < 0: unbounded.
  explicit PooledLru(int64_t capacity_tokens) : capacity_tokens_(capacity_tokens) {}
  // Prompt tokens found by each of the two caches.
  struct Hits {
    int64_t pooled = 0, infinite = 0;
  };
  // Afterwards the prompt's and the answer's blocks are cached, and the least recently used ones evicted.
  Hits serve(const TraceRequest& request);
  // Applies at once: blocks that no longer fit are evicted.
  void set_capacity(int64_t tokens) {
    capacity_tokens_ = tokens;
    evict();
  }
  int64_t tokens_held() const { return tokens_; }
  size_t run_count() const { return runs_.size(); }

 private:
  static constexpr int32_t kNone = -1;
  // A maximal stretch of blocks that only ever came one after the other: requests touch it whole, and its
  // successors follow its end. The infinite cache holds all of it, the pool the first `pooled` blocks; those
  // are in the pool's list.
  struct Run {
    uint32_t* ids = nullptr;       // (size), the low halves; in a slice of ids_
    uint32_t size = 0;             // blocks
    uint32_t room = 0;             // of the slice
    uint32_t first = 0, last = 0;  // first and last id, for quick comparisons
    int32_t parent = kNone;        // run before it
    int32_t tokens = 0;            // per block
    int32_t pooled = 0;
    int32_t newer = kNone, older = kNone;
    bool grows = true;        // has no successor
    bool is_partial = false;  // a partly filled block without successors
    uint64_t partial_id = 0;  // id of it
  };
  // A walk down a request's blocks.
  struct Walk {
    int32_t run = kNone;  // that ended last
    bool all_pooled = true;
    bool all_seen = true;
    Hits hits;
  };
  Run& run(int32_t index) { return runs_[static_cast<size_t>(index)]; }
  static size_t common_count(const Run& known, std::span<const uint64_t> ids);
  void fetch_neighbours(int32_t index) const;
  // Mixed, as a trace's ids may be small numbers.
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
  RadixIndex by_key_;  // by key_of() of the run before and its own first id
  // Partly filled last blocks of prompts, by id: all that were seen, with their runs if they are pooled.
  absl::flat_hash_map<uint64_t, int32_t> partials_;
  std::deque<Run> runs_;
  std::vector<int32_t> spare_runs_;  // of partial blocks that left the pool
  // Slices for ids; slices that runs have outgrown are never more than those in use.
  std::vector<std::unique_ptr<uint32_t[]>> ids_;
  uint32_t* next_slice_ = nullptr;
  uint32_t slice_room_ = 0;    // left behind it
  std::vector<int32_t> path_;  // scratch: a request's runs, head first
  int32_t newest_ = kNone, oldest_ = kNone;
};

}  // namespace troupe::sim
