#pragma once

// How cached blocks are used, and what the cache learns from it: the clock in ticks (blocks that became
// idle), the value of idle blocks (eviction_score.h) and the memory of evicted ones (ghost_list.h). Pure; not
// thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/core/block_hash.h"
#include "worker/kv/eviction_score.h"
#include "worker/kv/ghost_list.h"
#include "worker/kv/radix_tree.h"

namespace troupe {

class UseHistory {
 public:
  // `tree` is sampled by lessons, and lives longer. `block_count`: the size of the cache.
  UseHistory(const RadixTree& tree, int32_t block_count)
      : tree_(tree), ghosts_(block_count), score_(block_count) {}

  uint64_t ticks() const { return now_; }
  template <typename Use>  // or what is remembered of one
  IdleClass class_of(const Use& use) const {
    if (use.shared) return score_.shared_class(static_cast<double>(use.interval));
    return use.returning ? kReturningClass : kNewClass;
  }
  // Whether blocks used so may be of one run.
  bool is_alike(const RunUse& a, const RunUse& b) const {
    return a.user == b.user && a.shared == b.shared && a.returning == b.returning &&
           class_of(a) == class_of(b);
  }
  // The value of a block of this class that became idle then.
  double value_of(IdleClass idle_class, uint64_t idle_since) {
    return score_.of(idle_class, now_ - idle_since);
  }
  // How many blocks are worth the same: this one, and those that became idle a tick each later.
  uint64_t same_value_count(uint64_t idle_since) const {
    const uint64_t age = now_ - idle_since;
    return age - score_.same_value_from(age) + 1;
  }

  // A request of `user` takes a reference on a run.
  void record_use(RadixNode& run, uint32_t user, bool was_idle);
  // The blocks of a run become idle from the last one to the first, a tick each. Returns how many lessons are
  // due.
  int record_idle(RadixNode& run);
  void learn();

  // The use of a block that comes behind a run (below zero: behind none) for the first time.
  RunUse first_use(RadixNodeId before, uint32_t user) const;
  // The use of the block behind one that is used so.
  RunUse use_behind(const RunUse& before) const;

  // Evicted blocks that were used so, by the time since when the first one is idle.
  void remember(const GhostList::Row& row, const RunUse& use, uint64_t idle_since);
  // Prefetches the memory that recall() will need for the blocks behind one at a multiple of kGroup.
  void prefetch_remembered(Hash128 group_hash) const { ghosts_.prefetch(group_hash); }
  // Blocks [begin, end) of the prompt with these hashes come in. Returns for how many of them, from `begin`
  // on, the same is remembered (or nothing is), and adds it to the use of block `begin`.
  size_t recall(RunUse& use, std::span<const Hash128> hashes, size_t begin, size_t end);

 private:
  EvictionScore::Ages ages_of(const RadixNode& r) const { return {now_ - r.use.idle_since, r.count()}; }

  const RadixTree& tree_;
  GhostList ghosts_;
  EvictionScore score_;
  uint64_t now_ = 0;
  size_t lesson_count_ = 0;
};

}  // namespace troupe
