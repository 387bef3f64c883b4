#pragma once

// KV blocks by number. A block is free, in use by reference-holding requests, or cached: complete, named by
// its chained hash, referenced by nobody, and evictable. Pure; not thread-safe. Invariant (checked by
// verify()): free + cached + used == total.

#include <cstdint>
#include <vector>

#include "common/core/status.h"
#include "worker/schedule/request.h"

namespace troupe {

// Misuse (a double free, a reference on a free block) aborts: it would mix up requests' KV.
class BlockPool {
 public:
  explicit BlockPool(int32_t total_count);
  int32_t total_count() const { return static_cast<int32_t>(entries_.size()); }
  int32_t free_count() const { return static_cast<int32_t>(free_list_.size()); }
  int32_t cached_count() const { return cached_count_; }  // in the prefix cache with no reference
  int32_t used_count() const { return used_count_; }      // referenced

  // A free block with one reference, or -1.
  BlockId allocate();
  void add_reference(BlockId block);
  // Drops one reference; the count left. At 0 the block belongs to nobody: the caller frees or caches it.
  int32_t drop_reference(BlockId block);
  void release(BlockId block);  // → free list. REQUIRES: no reference
  void mark_cached(BlockId block, bool cached);
  int32_t reference_count(BlockId block) const { return entries_[static_cast<size_t>(block)].references; }
  bool is_cached(BlockId block) const { return entries_[static_cast<size_t>(block)].cached; }

  void prefetch(BlockId block) const { __builtin_prefetch(&entries_[static_cast<size_t>(block)]); }
  Status verify() const;  // O(total_count)

 private:
  struct Entry {
    int32_t references = 0;
    bool cached = false;
    bool free = true;
  };
  std::vector<Entry> entries_;
  std::vector<BlockId> free_list_;
  int32_t cached_count_ = 0;
  int32_t used_count_ = 0;
};

}  // namespace troupe
