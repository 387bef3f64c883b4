#pragma once

// Prompts of a few blocks in a prefix cache, computed, held and released as requests do.

#include <gtest/gtest.h>

#include <vector>

#include "worker/kv/prefix_cache.h"

namespace troupe::testing {

inline constexpr size_t kBlockSize = 4;

inline Hash128 key(uint64_t n) {
  return {n, n};
}

inline std::vector<Hash128> keys(uint64_t first, size_t count) {
  std::vector<Hash128> out;
  for (uint64_t n = first; n < first + count; ++n) out.push_back(key(n));
  return out;
}

// Hashes of full blocks: block key(n) holds ids n, n + 1, …
inline std::vector<TokenId> ids_of(const std::vector<Hash128>& hashes) {
  std::vector<TokenId> ids;
  for (const Hash128& hash : hashes) {
    for (size_t i = 0; i < kBlockSize; ++i) ids.push_back(static_cast<TokenId>(hash.hi + i));
  }
  return ids;
}

// A request as the scheduler's: it shares the cached part of its prompt and computes the rest.
struct Holder {
  Holder(PrefixCache& c, BlockPool& p, std::vector<Hash128> prompt, uint64_t user = 1)
      : cache(c), pool(p), hashes(std::move(prompt)), of(user) {
    path = cache.hold(cache.find(hashes), user, blocks);
    found = static_cast<size_t>(path.count);
    while (blocks.size() < hashes.size()) blocks.push_back(pool.allocate());
  }
  void compute() {
    const auto ids = ids_of(hashes);
    cache.insert(path, {.hashes = hashes, .blocks = blocks, .ids = ids, .user = of});
  }
  void end(bool drew = false) {
    cache.release(path, drew);
    for (size_t i = static_cast<size_t>(path.count); i < blocks.size(); ++i) pool.release(blocks[i]);
    path = {};
    blocks.clear();
  }
  PrefixCache& cache;
  BlockPool& pool;
  std::vector<Hash128> hashes;
  uint64_t of;
  std::vector<BlockId> blocks;
  LockedPrefix path;
  size_t found = 0;
};

struct Cache : ::testing::Test {
  explicit Cache(int32_t block_count = 64)
      : pool(block_count), residency(kBlockSize, block_count), cache(&pool, kBlockSize, &residency) {}
  // Computed and released as a request does.
  std::vector<BlockId> visit(const std::vector<Hash128>& prompt, uint64_t user = 1, bool drew = false) {
    Holder holder(cache, pool, prompt, user);
    holder.compute();
    std::vector<BlockId> blocks = holder.blocks;
    holder.end(drew);
    return blocks;
  }
  size_t found_of(const std::vector<Hash128>& prompt) const {
    return static_cast<size_t>(cache.find(prompt).count);
  }
  void expect_whole(std::vector<const Holder*> holders = {}, std::vector<PrefixCache::Pin> pins = {}) {
    PrefixCache::Holds holds;
    holds.pins = std::move(pins);
    for (const Holder* holder : holders) {
      holds.paths.push_back(holder->path);
      EXPECT_TRUE(cache.is_path(holder->path, holder->hashes, holder->blocks));
    }
    BlockSet in_cache(pool.total_count());
    const Status status = cache.verify(holds, in_cache);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(pool.verify().ok()) << pool.verify();
  }
  BlockPool pool;
  Residency residency;
  PrefixCache cache;
};
inline std::vector<Hash128> joined(std::vector<Hash128> a, const std::vector<Hash128>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace troupe::testing
