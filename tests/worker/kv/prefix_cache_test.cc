#include "worker/kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace troupe {
namespace prefix_cache_test {

constexpr size_t kBlockSize = 4;

Hash128 key(uint64_t n) {
  return {n, n};
}

std::vector<Hash128> keys(uint64_t first, size_t count) {
  std::vector<Hash128> out;
  for (uint64_t n = first; n < first + count; ++n) out.push_back(key(n));
  return out;
}

// Hashes of full blocks: block key(n) holds ids n, n + 1, …
std::vector<TokenId> ids_of(const std::vector<Hash128>& hashes) {
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
  void end() {
    cache.release(path);
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
  explicit Cache(int32_t block_count = 64) : pool(block_count), cache(&pool, kBlockSize) {}
  // Computed and released as a request does.
  std::vector<BlockId> visit(const std::vector<Hash128>& prompt, uint64_t user = 1) {
    Holder holder(cache, pool, prompt, user);
    holder.compute();
    std::vector<BlockId> blocks = holder.blocks;
    holder.end();
    return blocks;
  }
  size_t found_of(const std::vector<Hash128>& prompt) const {
    return static_cast<size_t>(cache.find(prompt).count);
  }
  void expect_whole(std::vector<const Holder*> holders = {}) {
    PrefixCache::Holds holds;
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
  PrefixCache cache;
};
using PrefixCacheTest = Cache;

std::vector<Hash128> joined(std::vector<Hash128> a, const std::vector<Hash128>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(PrefixCacheTest, FindsInsertedBlocksAfterRelease) {
  const auto blocks = visit(keys(1, 2));
  EXPECT_EQ(found_of(keys(1, 3)), 2u);
  EXPECT_EQ(found_of(keys(1, 1)), 1u);
  EXPECT_EQ(found_of(keys(2, 1)), 0u) << "a block is found behind those before it only";
  EXPECT_EQ(pool.cached_count(), 2);
  Holder again(cache, pool, keys(1, 2));
  EXPECT_EQ(again.blocks, blocks);
  EXPECT_EQ(pool.used_count(), 2);
  again.end();
  expect_whole();
}

TEST_F(PrefixCacheTest, DuplicateBlockIsFreed) {
  Holder first(cache, pool, keys(1, 3)), second(cache, pool, keys(1, 4));
  first.compute();
  const auto own = second.blocks;
  second.compute();
  EXPECT_EQ(std::vector(second.blocks.begin(), second.blocks.begin() + 3), first.blocks);
  EXPECT_EQ(second.blocks[3], own[3]);
  EXPECT_EQ(pool.free_count(), 64 - 4) << "the duplicates went straight back";
  EXPECT_EQ(cache.size(), 4);
  expect_whole({&first, &second});
  first.end();
  second.end();
  expect_whole();
}

TEST_F(PrefixCacheTest, PromptsPartAnywhereInARun) {
  Holder first(cache, pool, keys(1, 8));
  first.compute();
  Holder second(cache, pool, joined(keys(1, 5), keys(20, 3)), 2);
  EXPECT_EQ(second.found, 5u);
  Holder third(cache, pool, joined(keys(1, 2), keys(30, 3)), 3);
  EXPECT_EQ(third.found, 2u);
  second.compute();
  third.compute();
  expect_whole({&first, &second, &third});
  second.end();
  first.end();
  EXPECT_EQ(cache.evict(64), 3 + 3 + 3) << "all but what the third holds";
  EXPECT_EQ(found_of(keys(1, 8)), 2u);
  third.end();
  expect_whole();
  EXPECT_EQ(cache.evict(64), 5);
  EXPECT_EQ(pool.free_count(), 64);
  expect_whole();
}

TEST_F(PrefixCacheTest, ExtendingARunKeepsPathsThatEndInIt) {
  Holder first(cache, pool, keys(1, 4));
  first.compute();
  Holder second(cache, pool, keys(1, 6), 2);
  EXPECT_EQ(second.found, 4u);
  second.compute();
  expect_whole({&first, &second});
  second.end();
  EXPECT_EQ(cache.evict(64), 2);
  expect_whole({&first});
  first.end();
  expect_whole();
}

TEST_F(PrefixCacheTest, EvictsLastBlocksOfLongestIdleRunFirst) {
  visit(keys(10, 3));
  visit(keys(20, 2));
  EXPECT_EQ(cache.evict(2), 2);
  EXPECT_EQ(found_of(keys(10, 3)), 1u);
  EXPECT_EQ(found_of(keys(20, 2)), 2u);
  expect_whole();
  visit(keys(10, 1), 2);  // another comes for it: it is worth more than what nobody wanted
  EXPECT_EQ(cache.evict(2), 2);
  EXPECT_EQ(found_of(keys(20, 2)), 0u);
  EXPECT_EQ(found_of(keys(10, 1)), 1u);
  expect_whole();
}

TEST_F(PrefixCacheTest, NeverEvictsReferencedBlocks) {
  visit(keys(1, 3));
  Holder holder(cache, pool, keys(1, 2));
  EXPECT_EQ(cache.evict(10), 1);
  EXPECT_EQ(found_of(keys(1, 3)), 2u);
  EXPECT_EQ(cache.evict(1), 0);
  holder.end();
  EXPECT_EQ(cache.evict(10), 2);
  EXPECT_EQ(pool.free_count(), 64);
}

TEST_F(PrefixCacheTest, AnnouncementsBelongToTheirFirstOwner) {
  cache.announce(key(1), 7);
  cache.announce(key(1), 8);
  EXPECT_TRUE(cache.is_announced_by_other(key(1), 8));
  EXPECT_FALSE(cache.is_announced_by_other(key(1), 7));
  cache.withdraw(key(1), 8);
  EXPECT_EQ(cache.announced_count(), 1);
  const uint64_t before = cache.change_count();
  cache.withdraw(key(1), 7);
  EXPECT_GT(cache.change_count(), before);
  EXPECT_FALSE(cache.is_announced_by_other(key(1), 8));
}

TEST_F(PrefixCacheTest, FindsTailWithMostCommonIds) {
  Holder parent(cache, pool, keys(1, 1));
  parent.compute();
  const std::vector<TokenId> ids{50, 51, 52};
  for (const size_t count : {1u, 3u, 2u}) {  // the second covers the first, and the third says nothing new
    const BlockId tail = pool.allocate();
    const bool kept =
        cache.insert_tail(parent.path, {.block = tail, .ids = std::span(ids).first(count), .user = 1});
    EXPECT_EQ(kept, count != 2);
    if (!kept) pool.release(tail);
    expect_whole({&parent});
    EXPECT_EQ(cache.size(), 2);
  }
  const auto at = cache.find(keys(1, 1));
  const std::vector<TokenId> wanted{50, 51, 7, 8};
  EXPECT_EQ(cache.find_partial(at, {}, wanted, 1).count, 2);
  EXPECT_EQ(cache.find_partial(at, {}, std::span(wanted).first(1), 1).count, 1);
  EXPECT_EQ(cache.find_partial(at, {}, std::span(wanted).last(2), 1).block, -1);
  EXPECT_EQ(cache.find_partial(cache.find(keys(9, 1)), {}, wanted, 1).block, -1);
  EXPECT_EQ(cache.find_partial(at, {}, wanted, 3).block, -1);
  // A full block that begins so takes the tail's place; a part of it is found as well.
  Holder next(cache, pool, joined(keys(1, 1), keys(50, 1)));
  next.compute();
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(cache.find_partial(cache.find(keys(1, 1)), {}, wanted, 1).block, next.blocks[1]);
  next.end();
  parent.end();
  EXPECT_EQ(cache.evict(8), 2);
  EXPECT_EQ(pool.free_count(), 64);
  expect_whole();
}

TEST_F(PrefixCacheTest, PartialMatchInsideRunIsHeldAlone) {
  visit(keys(100, 5));
  const std::vector<TokenId> wanted{102, 103, 7};
  const auto prompt = keys(100, 2);
  const auto at = cache.find(prompt);
  const PartialMatch partial = cache.find_partial(at, {}, wanted, 1);
  EXPECT_EQ(partial.count, 2);
  Holder holder(cache, pool, prompt, 2);
  const RadixNodeId run = cache.hold_partial(partial, 2);
  EXPECT_EQ(cache.evict(64), 2) << "not the two before it, nor itself";
  EXPECT_EQ(found_of(keys(100, 5)), 3u);
  cache.drop(run);
  EXPECT_EQ(cache.evict(64), 1);
  expect_whole({&holder});
  holder.end();
  expect_whole();
}

TEST_F(PrefixCacheTest, TailsOfRootAreFoundAndEvicted) {
  const std::vector<TokenId> ids{50, 51, 52};
  const BlockId tail = pool.allocate();
  EXPECT_TRUE(cache.insert_tail({}, {.block = tail, .ids = ids, .root = key(77), .user = 1}));
  const PartialMatch partial = cache.find_partial({}, key(77), ids, 1);
  EXPECT_EQ(partial.block, tail);
  EXPECT_EQ(cache.find_partial({}, key(78), ids, 1).block, -1);  // another salt
  const RadixNodeId run = cache.hold_partial(partial, 2);
  EXPECT_EQ(cache.evict(1), 0);
  cache.drop(run);
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_EQ(cache.find_partial({}, key(77), ids, 1).block, -1);
  expect_whole();
}

TEST_F(PrefixCacheTest, SharedBlocksOutliveBlocksOfOneUser) {
  for (uint64_t user = 1; user <= 6; ++user) visit(keys(10, 2), user);
  for (uint64_t i = 0; i < 10; ++i) visit(keys(100 + 20 * i, 6), 100 + i);
  EXPECT_EQ(pool.cached_count(), 62);
  cache.evict(40);
  EXPECT_EQ(found_of(keys(10, 2)), 2u);
  EXPECT_EQ(cache.counts().evicted, 40);
  EXPECT_EQ(cache.counts().evicted_shared, 0);
  expect_whole();
}

TEST_F(PrefixCacheTest, VerifyFindsReferenceWithoutHolder) {
  Holder holder(cache, pool, keys(1, 3));
  holder.compute();
  expect_whole({&holder});
  BlockSet in_cache(pool.total_count());
  EXPECT_FALSE(cache.verify({}, in_cache).ok());
}

using PrefixCacheDeathTest = Cache;
TEST_F(PrefixCacheDeathTest, ReleasingTwiceAborts) {
  Holder holder(cache, pool, keys(1, 3));
  holder.compute();
  const LockedPrefix path = holder.path;
  cache.release(path);
  EXPECT_DEATH(cache.release(path), "without a reference");
}

TEST_F(PrefixCacheTest, WhatIsDiscardedIsFoundNoMore) {
  const auto persona = keys(1, 3), one = joined(persona, keys(100, 2)), two = joined(persona, keys(200, 2));
  visit(one);
  cache.discard(one, {}, ids_of(one));
  EXPECT_EQ(cache.size(), 0);
  visit(one);
  visit(two, 2);
  cache.discard(two, {}, ids_of(two));
  EXPECT_EQ(found_of(two), 3u) << "another conversation hangs on it";
  EXPECT_EQ(found_of(one), 5u);
  cache.discard(persona, {}, ids_of(persona));
  EXPECT_EQ(found_of(one), 5u);
  {
    Holder holder(cache, pool, one);
    cache.discard(one, {}, ids_of(one));
    EXPECT_EQ(found_of(one), 5u) << "it is held";
    expect_whole({&holder});
    holder.end();
  }
  const auto pin = cache.pin(cache.find(persona), {});
  cache.discard(one, {}, ids_of(one));
  EXPECT_EQ(found_of(one), 3u) << "they are pinned";
  cache.unpin(pin);
  cache.discard(one, {}, ids_of(one));
  EXPECT_EQ(cache.size(), 0);
  expect_whole();
}

TEST_F(PrefixCacheTest, ATailIsDiscardedWithItsChain) {
  const auto chain = keys(1, 2);
  auto ids = ids_of(chain);
  ids.insert(ids.end(), {70, 71, 72});
  Holder holder(cache, pool, chain);
  holder.compute();
  ASSERT_TRUE(
      cache.insert_tail(holder.path, {.block = pool.allocate(), .ids = std::span(ids).subspan(8, 2)}));
  holder.end();
  EXPECT_EQ(cache.size(), 3);
  cache.discard(chain, {}, ids);
  EXPECT_EQ(cache.size(), 0);
  expect_whole();
}

}  // namespace prefix_cache_test
}  // namespace troupe
