#pragma once

// Finds blocks by hash. Keeps 32 bits of each hash and leaves it to the caller to compare the rest, which
// lies with the block: eight bytes an entry, and a look-up is one line of memory more than the block's own.
// Pure; not thread-safe; never grows.

#include <bit>
#include <cstdint>
#include <vector>

#include "common/core/block_hash.h"
#include "worker/schedule/request.h"

namespace troupe {

class BlockIndex {
 public:
  // A fifth of the entries stay free at least, so that runs of taken ones are short.
  explicit BlockIndex(int32_t block_count)
      : entries_(std::bit_ceil(static_cast<size_t>(block_count) + static_cast<size_t>(block_count) / 4 + 1)) {
  }

  // The block of `hash`, or -1; `is(block)`: whether this one has it.
  template <typename Is>
  BlockId find(Hash128 hash, Is is) const {
    const uint32_t tag = tag_of(hash);
    for (size_t i = home_of(tag); entries_[i].block >= 0; i = next(i)) {
      if (entries_[i].tag == tag && is(entries_[i].block)) return entries_[i].block;
    }
    return -1;
  }
  void prefetch(Hash128 hash) const { __builtin_prefetch(&entries_[home_of(tag_of(hash))]); }
  // REQUIRES: no block of this hash is there, and no more than block_count are.
  void add(Hash128 hash, BlockId block);
  // REQUIRES: it is there.
  void remove(Hash128 hash, BlockId block);

 private:
  struct Entry {
    uint32_t tag = 0;
    BlockId block = -1;
  };
  static uint32_t tag_of(Hash128 hash) {
    return static_cast<uint32_t>((hash.lo + 3 * hash.hi) * 0x9e3779b97f4a7c15u >> 32);
  }
  size_t home_of(uint32_t tag) const { return tag * entries_.size() >> 32; }
  size_t next(size_t i) const { return (i + 1) & (entries_.size() - 1); }

  std::vector<Entry> entries_;  // a power of two; linear probing
};

}  // namespace troupe
