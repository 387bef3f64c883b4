#pragma once

// Remembers evicted blocks, eight times as many as the cache has blocks: only who used them and since when
// they lie idle. What comes back is not new, and the cache learns how long "too early" would have been. A
// table of small sets that never grows: in a full set the one that is idle for longest makes room. 32 bytes
// an entry. Pure; not thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/core/block_hash.h"
#include "worker/schedule/reuse_value.h"

namespace troupe {

struct EvictedBlock {
  uint64_t key = 0;         // half of the block's hash; 0: no entry
  uint64_t idle_since = 0;  // ticks
  uint32_t user = 0;        // the last one, shortened
  float interval = 0;
  uint8_t use_count = 1;
  bool returning = false;
  bool shared = false;
  IdleClass idle_class = kNewClass;
};

class EvictedBlocks {
 public:
  explicit EvictedBlocks(int32_t block_count);

  static uint64_t key_of(Hash128 hash) { return hash.lo | 1; }
  // REQUIRES: key_of() of a block that is not there.
  void add(const EvictedBlock& block);
  // Finds and forgets.
  std::optional<EvictedBlock> take(Hash128 hash);
  // All places, used or not, for who takes samples.
  std::span<const EvictedBlock> entries() const { return entries_; }

 private:
  static constexpr size_t kWays = 8;
  std::span<EvictedBlock> set_of(uint64_t key);

  std::vector<EvictedBlock> entries_;  // (sets, kWays)
};

}  // namespace troupe
