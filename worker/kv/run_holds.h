#pragma once

// References to the runs of the tree. A request that holds a run holds all before it, so a reference is taken
// on each run of a path. Runs without a reference are idle: cached, and evictable from their last block on.
// Pure; not thread-safe.

#include <cstdint>
#include <vector>

#include "worker/kv/block_pool.h"
#include "worker/kv/eviction.h"
#include "worker/kv/idle_leaves.h"
#include "worker/kv/prefix_blocks.h"
#include "worker/kv/radix_tree.h"
#include "worker/kv/use_history.h"

namespace troupe {

class RunHolds {
 public:
  // All live longer.
  RunHolds(RadixTree& tree, BlockPool& pool, UseHistory& history, IdleLeaves& leaves, Evictor& evictor)
      : tree_(tree), pool_(pool), history_(history), leaves_(leaves), evictor_(evictor) {}

  // The run that ends where the match does: split off where the run of the match has more. REQUIRES: one
  // matches.
  RadixNodeId whole_run(const PrefixMatch& match);
  // The run that the block of a partial match is, alone.
  RadixNodeId whole_run(const PartialMatch& partial);

  // PrefixCache::hold() and release().
  LockedPrefix hold(const PrefixMatch& match, uint64_t user, std::vector<BlockId>& out);
  void release(const LockedPrefix& path, bool drew);

  // One run: a reference for a request of `user`, or for a pin, which is no use.
  void take(RadixNodeId id, uint32_t user);
  void take_unused(RadixNodeId id);
  void drop(RadixNodeId id);
  // The run has no reference (any more). A corrupt one is freed. REQUIRES: its blocks are in use in the pool.
  void idle(RadixNodeId id);

 private:
  RadixTree& tree_;
  BlockPool& pool_;
  UseHistory& history_;
  IdleLeaves& leaves_;
  Evictor& evictor_;
};

}  // namespace troupe
