#pragma once

// A hash table that finds runs of cached blocks by the hash of their first block. It keeps 32 bits of each
// hash, eight bytes an entry; the caller compares the rest, which lies with the run. Grows with its contents.
// Pure; not thread-safe.

#include <cstdint>
#include <vector>

#include "common/core/block_hash.h"
#include "worker/kv/types.h"

namespace troupe {

class RadixIndex {
 public:
  // The run for which `is(run)` among those that were added under `hash`, or -1.
  template <typename Is>
  RadixNodeId find(Hash128 hash, Is is) const {
    const uint32_t tag = tag_of(hash);
    for (size_t i = home_of(tag); entries_[i].run >= 0; i = next(i)) {
      if (entries_[i].tag == tag && is(entries_[i].run)) return entries_[i].run;
    }
    return -1;
  }
  // REQUIRES: it is not there.
  void add(Hash128 hash, RadixNodeId run);
  // REQUIRES: it is there.
  void remove(Hash128 hash, RadixNodeId run);
  size_t size() const { return size_; }

 private:
  struct Entry {
    uint32_t tag = 0;
    RadixNodeId run = -1;
  };
  static uint32_t tag_of(Hash128 hash) {
    return static_cast<uint32_t>((hash.lo + 3 * hash.hi) * 0x9e3779b97f4a7c15u >> 32);
  }
  size_t home_of(uint32_t tag) const { return tag * entries_.size() >> 32; }
  size_t next(size_t i) const { return (i + 1) & (entries_.size() - 1); }
  void place(Entry entry);
  void grow();

  std::vector<Entry> entries_ = std::vector<Entry>(64);  // a power of two; linear probing
  size_t size_ = 0;
};

}  // namespace troupe
