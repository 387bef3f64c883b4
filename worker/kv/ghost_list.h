#pragma once

// A ghost list: remembers evicted blocks, some ten times as many as the cache has blocks, by their last user
// and the time since when they lie idle. A block that comes back is then not new, and the cache learns how
// much longer it should have been kept. A table of small sets that never grows: in a full set the entry that
// is idle for longest makes room.
//
// Blocks go and come back in rows, so one entry stands for up to eight of them: neighbours between two
// multiples of eight of a prompt, found by the hash of the block at the first multiple. An entry keeps 16
// bits of each block's hash (one in 13,000 new blocks is taken for one that comes back), 12 bits of the user,
// and intervals to a quarter of an octave. Times wrap after 2^32 ticks, long after the sets were filled anew.
//
// A set gets its memory when its first entry comes: all sets need two thirds more than all hashes of a cache,
// which is much for a simulated fleet's nodes that have hardly evicted anything. Pure; not thread-safe.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/core/block_hash.h"

namespace troupe {

struct GhostEntry {
  uint64_t idle_since = 0;  // ticks
  uint32_t user = 0;        // the last one, shortened
  float interval = 0;       // usual ticks between two uses; 0: used once
  uint32_t use_count = 1;   // up to 8
  bool returning = false;
  bool shared = false;
};

class GhostList {
 public:
  explicit GhostList(int32_t block_count);

  static constexpr size_t kGroup = 8;
  // Blocks of a prompt from its index-th on, used alike. Each lies idle a tick longer than the one before it.
  struct Row {
    size_t index = 0;
    std::span<const Hash128> hashes;
    Hash128 group_hash;  // of the prompt's block at `index`, rounded down to a multiple of kGroup
  };
  void add(const Row& row, const GhostEntry& first);
  // Fetches the memory that take() will need for the blocks behind one at a multiple of kGroup.
  void prefetch(Hash128 group_hash) const {
    if (places_.empty()) return;
    const Set* const set = find(set_index(group_hash));
    if (set == nullptr) return;
    __builtin_prefetch(set);
    __builtin_prefetch(reinterpret_cast<const char*>(set) + 64);
  }
  // Blocks [begin, end) of the prompt with these hashes come back. Returns what is remembered of block
  // `begin` and for how many blocks from there on it is the same, and forgets these.
  struct Found {
    size_t count = 0;
    std::optional<GhostEntry> block;
  };
  Found take(std::span<const Hash128> hashes, size_t begin, size_t end, uint64_t now);
  // Whether `user` is the one remembered, as far as the kept bits show.
  static bool is_same_user(const GhostEntry& block, uint32_t user) {
    return block.user == (user & kUserMask);
  }
  // All entries, for sampling: how many there may be, and one by its index (count 0: it is empty).
  size_t size() const { return places_.size() * kWays; }
  Found at(size_t index, uint64_t now) const;
  void prefetch_at(size_t index) const {
    if (const Set* const set = find(index / kWays)) __builtin_prefetch(&set->entries[index % kWays]);
  }

 private:
  static constexpr size_t kWays = 5;
  static constexpr uint32_t kUserMask = (1u << 12) - 1;
  struct Entry {
    std::array<uint16_t, kGroup> tags{};  // by place in the group
    uint32_t time = 0;                    // since when the first block is idle
    uint32_t user : 12 = 0;
    uint32_t interval : 7 = 0;
    uint32_t first : 3 = 0;  // places of its blocks
    uint32_t last : 3 = 0;
    uint32_t uses : 3 = 0;  // less one
    uint32_t returning : 1 = 0;
    uint32_t shared : 1 = 0;
    uint32_t taken : 1 = 0;  // else there is no entry
  };
  static_assert(sizeof(Entry) == 24);
  struct alignas(64) Set {
    std::array<Entry, kWays> entries;
  };
  static_assert(sizeof(Set) == 128);
  static constexpr size_t kChunk = 64;
  size_t set_index(Hash128 hash) const { return static_cast<size_t>((hash.lo >> 32) * set_count_ >> 32); }
  // Null: the set never had an entry.
  Set* find(size_t index) const {
    const uint32_t place = places_[index];
    return place == 0 ? nullptr : &(*chunks_[(place - 1) / kChunk])[(place - 1) % kChunk];
  }
  Set& find_or_make(size_t index);
  static uint16_t tag_of(Hash128 hash) { return static_cast<uint16_t>(hash.lo); }
  void put(Set& set, const Entry& added);
  static GhostEntry unpack(const Entry& entry, uint64_t now);

  size_t set_count_;
  std::vector<uint32_t> places_;  // by set: in chunks_, from 1; 0: none. Empty before the first eviction
  std::vector<std::unique_ptr<std::array<Set, kChunk>>> chunks_;
  uint32_t sets_made_ = 0;
};

}  // namespace troupe
