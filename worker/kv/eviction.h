#pragma once

// Takes blocks out of the prefix cache: the least valuable ones where room is needed, or certain ones. Blocks
// that go are published by residency and come onto the free list. Pure; not thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "common/core/block_hash.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/idle_leaves.h"
#include "worker/kv/prefix_blocks.h"
#include "worker/kv/radix_tree.h"
#include "worker/kv/residency.h"
#include "worker/kv/use_history.h"

namespace troupe {

class Evictor {
 public:
  // All live longer; `residency` may be null.
  Evictor(RadixTree& tree, BlockPool& pool, Residency* residency, UseHistory& history, IdleLeaves& leaves)
      : tree_(tree), pool_(pool), residency_(residency), history_(history), leaves_(leaves) {}

  // Frees up to `count` blocks. Returns the number freed.
  int32_t evict(int32_t count);
  // Frees a run, which is not counted as evicted nor remembered. REQUIRES: an idle leaf.
  void remove(RadixNodeId id);
  // Residency lists the run's blocks no more, though requests or pins may hold them.
  void unpublish(RadixNodeId id);

  const EvictionCounts& counts() const { return counts_; }

 private:
  int32_t evict_from(RadixNodeId id, int32_t count);
  std::span<const Hash128> last_hashes(const RadixNode& r, int32_t count);
  Hash128 hash_at(RadixNodeId id, size_t index) const;
  void cut(RadixNodeId id, int32_t count, std::span<const Hash128> hashes);

  RadixTree& tree_;
  BlockPool& pool_;
  Residency* residency_;
  UseHistory& history_;
  IdleLeaves& leaves_;
  std::vector<Hash128> hashes_;  // scratch
  EvictionCounts counts_;
};

}  // namespace troupe
