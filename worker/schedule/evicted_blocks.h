#pragma once

// Remembers evicted blocks, eight times as many as the cache has blocks: only who used them and since when
// they lie idle. What comes back is not new, and the cache learns how long "too early" would have been. A
// table of small sets that never grows: in a full set the one that is idle for longest makes room.
//
// Eight bytes an entry, so that a set is one line of memory. What is remembered is therefore coarse: idle
// times to a 64th of a turnover (as many ticks as the cache has blocks), intervals to a quarter of an octave,
// users and blocks by a few bits of their hashes (one in 30,000 new blocks is taken for one that comes back).
// Times wrap after 16,384 turnovers, long after the sets were filled anew. Pure; not thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/core/block_hash.h"

namespace troupe {

struct EvictedBlock {
  uint64_t idle_since = 0;  // ticks
  uint32_t user = 0;        // the last one, shortened
  float interval = 0;       // usual ticks between two uses; 0: used once
  uint32_t use_count = 1;   // up to 8
  bool returning = false;
  bool shared = false;
};

class EvictedBlocks {
 public:
  explicit EvictedBlocks(int32_t block_count);

  // `now`: ticks; idle_since lies before it, at most 16,384 turnovers.
  void add(Hash128 hash, const EvictedBlock& block, uint64_t now) { add({&hash, 1}, block, now); }
  // Blocks that follow one another: each lies idle a tick longer than the one before it, the first as told.
  void add(std::span<const Hash128> hashes, const EvictedBlock& first, uint64_t now);
  // Fetches the memory that take() will need.
  void prefetch(Hash128 hash) const { __builtin_prefetch(&sets_[set_index(hash)]); }
  // Finds and forgets.
  std::optional<EvictedBlock> take(Hash128 hash, uint64_t now);
  // Whether `user` is, as far as is known, the one remembered.
  static bool is_same_user(const EvictedBlock& block, uint32_t user) {
    return block.user == (user & kUserMask);
  }
  // All places, and what is in one, for who takes samples.
  size_t size() const { return sets_.size() * kWays; }
  std::optional<EvictedBlock> at(size_t index, uint64_t now) const;

 private:
  static constexpr size_t kWays = 8;
  static constexpr int kTimeBits = 20;
  static constexpr uint32_t kTimeMask = (1u << kTimeBits) - 1;
  static constexpr uint32_t kUserMask = (1u << 13) - 1;
  struct Entry {
    uint64_t tag : 18 = 0;  // 0: no entry
    uint64_t time : kTimeBits = 0;
    uint64_t user : 13 = 0;
    uint64_t interval : 6 = 0;
    uint64_t uses : 3 = 0;  // less one
    uint64_t returning : 1 = 0;
    uint64_t shared : 1 = 0;
  };
  static_assert(sizeof(Entry) == 8);
  struct alignas(64) Set {
    std::array<Entry, kWays> entries;
  };
  size_t set_index(Hash128 hash) const { return static_cast<size_t>((hash.lo >> 32) * sets_.size() >> 32); }
  static uint64_t tag_of(Hash128 hash);
  uint64_t age_of(const Entry& entry, uint64_t now) const;  // in units
  EvictedBlock unpack(const Entry& entry, uint64_t now) const;

  std::vector<Set> sets_;
  uint64_t unit_;  // ticks
};

}  // namespace troupe
