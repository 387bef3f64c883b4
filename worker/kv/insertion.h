#pragma once

// Brings computed blocks into the prefix cache. The cost is one of runs, however many blocks they have,
// except for copying token ids and for asking the ghost list about blocks that come back. Pure; not
// thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/core/block_hash.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/eviction.h"
#include "worker/kv/idle_leaves.h"
#include "worker/kv/prefix_blocks.h"
#include "worker/kv/radix_tree.h"
#include "worker/kv/residency.h"
#include "worker/kv/run_holds.h"
#include "worker/kv/use_history.h"

namespace troupe {

class Insertion {
 public:
  // The parts of the cache that insertion works on; all live longer. `residency` may be null.
  struct Parts {
    RadixTree& tree;
    BlockPool& pool;
    Residency* residency;
    UseHistory& history;
    IdleLeaves& leaves;
    Evictor& evictor;
    RunHolds& holds;
  };
  Insertion(const Parts& parts, int32_t block_size)
      : cache_(parts), block_size_(static_cast<size_t>(block_size)) {}

  // PrefixCache's functions of these names.
  void insert(LockedPrefix& path, const PrefixBlocks& blocks);
  bool insert_tail(const LockedPrefix& path, const PartlyFilledBlock& last);

  // Grows whenever full blocks are added.
  uint64_t add_count() const { return add_count_; }

 private:
  // Blocks behind a path up to the end-th of their prompt, used alike.
  struct Row {
    RunUse use;
    size_t end = 0;
  };
  void adopt(LockedPrefix& path, RadixNodeId known, const PrefixBlocks& blocks);
  void add(LockedPrefix& path, const PrefixBlocks& blocks);
  void place(LockedPrefix& path, const PrefixBlocks& blocks, const Row& row);
  Residency::Extent publish(const LockedPrefix& path, const PrefixBlocks& blocks,
                            std::span<const Hash128> added);
  void remove_covered(const LockedPrefix& path, Hash128 root, std::span<const TokenId> by);

  Parts cache_;
  size_t block_size_;  // tokens
  uint64_t add_count_ = 0;
};

}  // namespace troupe
