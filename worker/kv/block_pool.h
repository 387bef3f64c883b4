#pragma once

// KV blocks by number. A block is free, in use by requests, or cached: complete, in the prefix cache,
// referenced by nobody, and evictable. Who holds which block is known to the cache (prefix_cache.h) and to
// requests; here is who is free, and how many are what. Pure; not thread-safe.

#include <cstdint>
#include <vector>

#include "common/core/status.h"
#include "worker/kv/block_set.h"
#include "worker/kv/types.h"

namespace troupe {

// Misuse (a double free, more cached blocks than there are) aborts: it would mix up requests' KV.
class BlockPool {
 public:
  explicit BlockPool(int32_t total_count);
  int32_t total_count() const { return free_.block_count(); }
  int32_t free_count() const {
    return total_count() - first_new_ + static_cast<int32_t>(free_list_.size()) - owed_count_;
  }
  int32_t cached_count() const { return cached_count_; }  // in the prefix cache with no reference
  int32_t used_count() const { return total_count() - free_count() - cached_count_; }

  // A free block, in use from now on, or -1.
  BlockId allocate();
  // So many of them, to the end of `out`. REQUIRES: they are free.
  void allocate(int32_t count, std::vector<BlockId>& out);
  // So many free blocks are in use from now on, whichever they will be: whoever has them asks by
  // allocate_owed() when it matters. Below zero: not after all.
  void owe(int32_t count);
  void allocate_owed(int32_t count, std::vector<BlockId>& out);
  int32_t owed_count() const { return owed_count_; }
  // → free list. REQUIRES: it is in use.
  void release(BlockId block);
  // So many blocks in use are cached and referenced by nobody from now on; below zero: so many of those are
  // in use again.
  void add_cached(int32_t count);
  bool is_free(BlockId block) const { return free_.contains(block); }
  const BlockSet& free_blocks() const { return free_; }

  Status verify() const;  // O(total_count)

 private:
  void take_free(int32_t count, std::vector<BlockId>& out);

  BlockSet free_;
  std::vector<BlockId> free_list_;  // of those before first_new_
  BlockId first_new_ = 0;           // from here on no block was ever used
  int32_t owed_count_ = 0;          // of those on the list and from there on
  int32_t cached_count_ = 0;
};

}  // namespace troupe
