#pragma once

// The leaves of the tree that may be evicted: runs without references and children, in one ordered list per
// class, by the time they became idle. Planned prefixes (set_planned) lie in lists of their own, from which
// eviction takes when all others are empty. A run's `listed` and its place here agree at all times, so what
// changes its class, its mark or its idle time does so while it is not listed. Pure; not thread-safe.

#include <array>
#include <cstdint>
#include <utility>

#include "absl/container/btree_set.h"
#include "common/core/status.h"
#include "worker/kv/radix_tree.h"
#include "worker/kv/types.h"
#include "worker/kv/use_history.h"

namespace troupe {

// The time since when the last block of a run lies idle.
inline uint64_t last_idle_since(const RadixNode& r) {
  return r.use.idle_since - static_cast<uint64_t>(r.count() - 1);
}

class IdleLeaves {
 public:
  // Both live longer. `block_count`: the size of the cache.
  IdleLeaves(RadixTree& tree, UseHistory& history, int32_t block_count);

  void add(RadixNodeId id);
  void remove(RadixNodeId id);
  void add_if_idle_leaf(RadixNodeId id) {
    if (tree_.run(id).is_leaf() && tree_.run(id).references == 0) add(id);
  }
  // Splits a run as the tree does. The back keeps its place, which is by the idle time of its first block.
  RadixNodeId split(RadixNodeId id, int32_t count);
  // The leaf whose last block is the next to evict, or -1.
  RadixNodeId least_valuable() {
    const RadixNodeId id = least_of(unplanned_);
    return id >= 0 || planned_count_ == 0 ? id : least_of(planned_);
  }

  // PrefixCache::set_planned().
  void set_planned(const LockedPrefix& path, int32_t count, bool planned);
  // Counts runs that come (or go, below zero) with the mark.
  void count_planned(int32_t runs) { planned_count_ += runs; }
  // Takes the mark from leaves that were not used for long.
  void retire_planned();

  // Also: `idle_count` is the number of blocks without a reference.
  Status verify(int32_t idle_count) const;

 private:
  // By (idle_since, run): the first is the one idle for longest. No other run's ticks lie between those of a
  // run's blocks, so its place stays while it loses its last blocks.
  using Lists = std::array<absl::btree_set<std::pair<uint64_t, RadixNodeId>>, kIdleClassCount>;
  Lists& lists_of(const RadixNode& r) { return r.planned ? planned_ : unplanned_; }
  RadixNodeId least_of(const Lists& lists);
  Status verify_lists(const Lists& lists, size_t& listed_count) const;

  RadixTree& tree_;
  UseHistory& history_;
  uint64_t planned_ticks_max_;
  Lists unplanned_, planned_;
  int32_t planned_count_ = 0;  // runs, leaves or not
};

}  // namespace troupe
