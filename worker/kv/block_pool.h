#pragma once

// KV blocks by number. A block is free, in use by requests, or cached: complete, in the prefix cache, without
// a reference, and evictable. The pool knows which blocks are free and counts the others; the cache
// (prefix_cache.h) and the requests know which of them they hold. Pure; not thread-safe.

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
    return total_count() - first_new_ + static_cast<int32_t>(free_list_.size()) - reserved_count_;
  }
  int32_t cached_count() const { return cached_count_; }  // in the prefix cache with no reference
  int32_t used_count() const { return total_count() - free_count() - cached_count_; }

  // A free block, in use from now on, or -1.
  BlockId allocate();
  // Appends `count` free blocks to `out`, in use from now on. REQUIRES: that many are free.
  void allocate(int32_t count, std::vector<BlockId>& out);
  // `count` free blocks are in use from now on without being chosen yet; allocate_reserved() chooses them. A
  // negative count takes reserved ones back.
  void reserve(int32_t count);
  void allocate_reserved(int32_t count, std::vector<BlockId>& out);
  int32_t reserved_count() const { return reserved_count_; }
  // The block is free again. REQUIRES: it is in use.
  void release(BlockId block);
  // `count` blocks in use are cached without a reference from now on; a negative count: that many of those
  // are in use again.
  void add_cached(int32_t count);
  bool is_free(BlockId block) const { return free_.contains(block); }
  const BlockSet& free_blocks() const { return free_; }

  Status verify() const;  // O(total_count)

 private:
  void take_free(int32_t count, std::vector<BlockId>& out);

  BlockSet free_;
  std::vector<BlockId> free_list_;  // of those before first_new_
  BlockId first_new_ = 0;           // this block and all behind it were never used
  int32_t reserved_count_ = 0;      // of the free blocks
  int32_t cached_count_ = 0;
};

}  // namespace troupe
