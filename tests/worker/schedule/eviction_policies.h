#pragma once

// Plays one trace through the cache's own eviction and two policies to compare with: least recently used, and
// Belady's rule, which knows the future (the block whose next use is furthest goes). All three take leaves
// only, and never a block of the visit that is being served.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "worker/kv/prefix_cache.h"

namespace troupe::testing {

// One request: the names of its blocks, each standing for itself and all before it.
struct Visit {
  std::vector<uint64_t> blocks;
  uint64_t user = 0;
};
using Trace = std::vector<Visit>;

struct HitRates {
  double lru = 0, ours = 0, belady = 0;
};

class ReferenceCache {
 public:
  enum class Rule { kLru, kBelady };

  // Hits among all blocks asked for from visit `from` on.
  static double hit_rate(Rule rule, const Trace& trace, size_t capacity, size_t from) {
    ReferenceCache cache;
    const auto next_uses = rule == Rule::kBelady ? next_uses_of(trace) : std::vector<std::vector<int64_t>>();
    int64_t hits = 0, asked = 0, tick = 0;
    for (size_t v = 0; v < trace.size(); ++v) {
      const auto& blocks = trace[v].blocks;
      size_t found = 0;
      while (found < blocks.size() && cache.entries_.contains(blocks[found])) ++found;
      if (v >= from) hits += static_cast<int64_t>(found);
      if (v >= from) asked += static_cast<int64_t>(blocks.size());
      // Held while the visit lasts: out of the leaves.
      for (size_t i = 0; i < found; ++i) cache.unlist(blocks[i]);
      size_t held = found;
      for (; held < blocks.size(); ++held) {
        if (cache.entries_.size() == capacity && !cache.evict()) break;
        cache.entries_[blocks[held]] = {held == 0 ? 0 : blocks[held - 1], 0, 0, true};
        if (held > 0) ++cache.entries_[blocks[held - 1]].child_count;
      }
      for (size_t i = held; i-- > 0;) {
        cache.release(blocks[i], rule == Rule::kLru ? ++tick : -next_uses[v][i]);
      }
    }
    return static_cast<double>(hits) / static_cast<double>(asked);
  }

 private:
  struct Entry {
    uint64_t parent = 0;  // 0: root
    int32_t child_count = 0;
    int64_t key = 0;  // the least goes first
    bool held = false;
  };

  static std::vector<std::vector<int64_t>> next_uses_of(const Trace& trace) {
    std::vector<std::vector<int64_t>> uses(trace.size());
    std::unordered_map<uint64_t, int64_t> next;
    for (size_t v = trace.size(); v-- > 0;) {
      for (const uint64_t block : trace[v].blocks) {
        const auto it = next.find(block);
        uses[v].push_back(it == next.end() ? INT64_MAX : it->second);
        next[block] = static_cast<int64_t>(v);
      }
    }
    return uses;
  }

  void unlist(uint64_t block) {
    Entry& entry = entries_.at(block);
    leaves_.erase({entry.key, block});
    entry.held = true;
  }
  void release(uint64_t block, int64_t key) {
    Entry& entry = entries_.at(block);
    entry.key = key;
    entry.held = false;
    if (entry.child_count == 0) leaves_.emplace(key, block);
  }
  bool evict() {
    if (leaves_.empty()) return false;
    const uint64_t block = leaves_.begin()->second;
    leaves_.erase(leaves_.begin());
    const uint64_t parent = entries_.at(block).parent;
    entries_.erase(block);
    if (parent == 0) return true;
    Entry& entry = entries_.at(parent);
    if (--entry.child_count == 0 && !entry.held) leaves_.emplace(entry.key, parent);
    return true;
  }

  std::unordered_map<uint64_t, Entry> entries_;
  std::set<std::pair<int64_t, uint64_t>> leaves_;
};

// The real cache on the same trace.
inline double our_hit_rate(const Trace& trace, size_t capacity, size_t from) {
  BlockPool pool(static_cast<int32_t>(capacity));
  PrefixCache cache(&pool, 1);
  int64_t hits = 0, asked = 0;
  std::vector<BlockId> held;
  std::vector<Hash128> names;
  for (size_t v = 0; v < trace.size(); ++v) {
    const auto& [blocks, user] = trace[v];
    names.clear();
    for (const uint64_t block : blocks) names.push_back(chain_hash({1, block}, std::string_view()));
    held.clear();
    LockedPrefix path = cache.hold(cache.find(names), user, held);
    if (v >= from) hits += static_cast<int64_t>(held.size());
    if (v >= from) asked += static_cast<int64_t>(blocks.size());
    const size_t found = held.size();
    cache.evict(static_cast<int32_t>(blocks.size() - found) - pool.free_count());
    while (held.size() < blocks.size() && pool.free_count() > 0) held.push_back(pool.allocate());
    cache.insert(path, {.hashes = names, .blocks = held, .root = {7, 7}, .user = user});
    cache.release(path);
  }
  BlockSet in_cache(pool.total_count());
  const Status status = cache.verify({}, in_cache);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(pool.verify().ok()) << pool.verify();
  return static_cast<double>(hits) / static_cast<double>(asked);
}

// The first fifth fills the caches and is not counted.
inline HitRates hit_rates(const Trace& trace, size_t capacity) {
  const size_t from = trace.size() / 5;
  return {ReferenceCache::hit_rate(ReferenceCache::Rule::kLru, trace, capacity, from),
          our_hit_rate(trace, capacity, from),
          ReferenceCache::hit_rate(ReferenceCache::Rule::kBelady, trace, capacity, from)};
}

}  // namespace troupe::testing
