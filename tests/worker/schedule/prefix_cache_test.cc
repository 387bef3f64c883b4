#include "worker/schedule/prefix_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace troupe {
namespace prefix_cache_test {

Hash128 key(uint64_t n) {
  return {n, n};
}

constexpr int kBlockSize = 4;

// A full block of ids n, n + 1, … under key(n); parent 0: the root.
PrefixCache::Block block_of(uint64_t n, uint64_t parent, BlockId block, uint64_t user = 1) {
  static const std::vector<TokenId> ids = [] {
    std::vector<TokenId> all(1000);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }();
  return {block, key(n), key(parent), std::span(ids).subspan(n, kBlockSize), user};
}

// A chain of blocks root → key(first) → key(first + 1) …, computed and released as a request does.
std::vector<BlockId> cached_chain(PrefixCache& cache, BlockPool& pool, uint64_t first, int count,
                                  uint64_t user = 1) {
  std::vector<BlockId> blocks;
  for (int i = 0; i < count; ++i) {
    const uint64_t n = first + static_cast<uint64_t>(i);
    blocks.push_back(pool.allocate());
    cache.insert(block_of(n, i == 0 ? 0 : n - 1, blocks.back(), user));
  }
  for (size_t i = blocks.size(); i-- > 0;) cache.release(blocks[i]);
  return blocks;
}

TEST(PrefixCache, FindsWhatWasInsertedAfterItsRequestEnded) {
  BlockPool pool(4);
  PrefixCache cache(&pool, kBlockSize);
  const auto blocks = cached_chain(cache, pool, 1, 2);
  EXPECT_EQ(cache.find(key(1)), blocks[0]);
  EXPECT_EQ(cache.find(key(2)), blocks[1]);
  EXPECT_EQ(cache.find(key(3)), -1);
  EXPECT_EQ(pool.cached_count(), 2);
  EXPECT_TRUE(cache.verify().ok());
}

TEST(PrefixCache, ASecondBlockOfTheSameContentIsNotInserted) {
  BlockPool pool(4);
  PrefixCache cache(&pool, kBlockSize);
  const BlockId first = pool.allocate();
  const BlockId second = pool.allocate();
  EXPECT_EQ(cache.insert(block_of(1, 0, first)), first);
  EXPECT_EQ(cache.insert(block_of(1, 0, second)), first);
  cache.release(second);
  EXPECT_EQ(pool.free_count(), 3);  // the duplicate went straight back
  EXPECT_EQ(cache.size(), 1);
}

TEST(PrefixCache, EvictsLeavesOfTheLeastRecentChainFirst) {
  BlockPool pool(8);
  PrefixCache cache(&pool, kBlockSize);
  cached_chain(cache, pool, 10, 3);
  cached_chain(cache, pool, 20, 2);
  EXPECT_EQ(cache.evict(2), 2);
  EXPECT_EQ(cache.find(key(12)), -1);
  EXPECT_EQ(cache.find(key(11)), -1);
  EXPECT_GE(cache.find(key(10)), 0);
  EXPECT_TRUE(cache.verify().ok());
  const BlockId again =
      cache.find(key(10));  // another comes for it: it is worth more than what nobody wanted
  cache.acquire(again, 2);
  cache.release(again);
  EXPECT_EQ(cache.evict(2), 2);
  EXPECT_EQ(cache.find(key(20)), -1);
  EXPECT_GE(cache.find(key(10)), 0);
  EXPECT_TRUE(cache.verify().ok());
}

TEST(PrefixCache, NeverEvictsWhatIsReferenced) {
  BlockPool pool(4);
  PrefixCache cache(&pool, kBlockSize);
  const auto blocks = cached_chain(cache, pool, 1, 3);
  cache.acquire(blocks[0], 1);
  cache.acquire(blocks[1], 1);
  EXPECT_EQ(cache.evict(10), 1);
  EXPECT_EQ(cache.find(key(1)), blocks[0]);
  EXPECT_EQ(cache.find(key(2)), blocks[1]);
  EXPECT_EQ(cache.find(key(3)), -1);
  EXPECT_EQ(cache.evict(1), 0);
  cache.release(blocks[1]);
  cache.release(blocks[0]);
  EXPECT_EQ(cache.evict(10), 2);
  EXPECT_EQ(pool.free_count(), 4);
}

TEST(PrefixCache, AnnouncementsBelongToTheirFirstOwner) {
  BlockPool pool(1);
  PrefixCache cache(&pool, kBlockSize);
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

TEST(PrefixCache, FindsTheTailThatSharesMostIds) {
  BlockPool pool(8);
  PrefixCache cache(&pool, kBlockSize);
  const BlockId parent = pool.allocate();
  cache.insert(block_of(1, 0, parent));
  const std::vector<TokenId> ids{50, 51, 52};
  for (const size_t count : {1u, 3u, 2u}) {  // the second covers the first, and the third says nothing new
    const BlockId tail = pool.allocate();
    cache.insert_tail({tail, {}, key(1), std::span(ids).first(count), 1});
    cache.release(tail);
    EXPECT_TRUE(cache.verify().ok()) << cache.verify();
    EXPECT_EQ(cache.size(), 2);
  }
  const std::vector<TokenId> wanted{50, 51, 7, 8};
  EXPECT_EQ(cache.find_partial(key(1), wanted, 1).count, 2);
  EXPECT_EQ(cache.find_partial(key(1), std::span(wanted).first(1), 1).count, 1);
  EXPECT_EQ(cache.find_partial(key(1), std::span(wanted).last(2), 1).block, -1);
  EXPECT_EQ(cache.find_partial(key(9), wanted, 1).block, -1);
  EXPECT_EQ(cache.find_partial(key(1), wanted, 3).block, -1);
  // A full block that begins so takes the tail's place; a part of it is found as well.
  const BlockId full = pool.allocate();
  cache.insert(block_of(50, 1, full));
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(cache.find_partial(key(1), wanted, 1).block, full);
  cache.release(full);
  cache.release(parent);
  EXPECT_EQ(cache.evict(8), 2);
  EXPECT_EQ(pool.free_count(), 8);
  EXPECT_TRUE(cache.verify().ok());
}

TEST(PrefixCache, TailsOfARootAreFoundAndForgotten) {
  BlockPool pool(2);
  PrefixCache cache(&pool, kBlockSize);
  const std::vector<TokenId> ids{50, 51, 52};
  const BlockId tail = pool.allocate();
  cache.insert_tail({tail, {}, key(77), ids, 1});
  cache.release(tail);
  EXPECT_EQ(cache.find_partial(key(77), ids, 1).block, tail);
  EXPECT_EQ(cache.find_partial(key(78), ids, 1).block, -1);  // another salt
  cache.acquire(tail, 2);
  EXPECT_EQ(cache.evict(1), 0);
  cache.release(tail);
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_EQ(cache.find_partial(key(77), ids, 1).block, -1);
  EXPECT_TRUE(cache.verify().ok());
}

TEST(PrefixCache, WhatManyUseOutlivesWhatOneUsedLater) {
  BlockPool pool(64);
  PrefixCache cache(&pool, kBlockSize);
  const auto persona = cached_chain(cache, pool, 10, 2);
  for (uint64_t user = 2; user <= 6; ++user) {
    for (const BlockId block : persona) cache.acquire(block, user);
    for (size_t i = persona.size(); i-- > 0;) cache.release(persona[i]);
  }
  for (uint64_t i = 0; i < 10; ++i) cached_chain(cache, pool, 100 + 20 * i, 6, 100 + i);
  EXPECT_EQ(pool.cached_count(), 62);
  cache.evict(40);
  EXPECT_GE(cache.find(key(10)), 0);
  EXPECT_GE(cache.find(key(11)), 0);
  EXPECT_EQ(cache.counts().evicted, 40);
  EXPECT_EQ(cache.counts().evicted_shared, 0);
  EXPECT_TRUE(cache.verify().ok());
}

TEST(PrefixCache, VerifySeesAParentReleasedBeforeItsChild) {
  BlockPool pool(4);
  PrefixCache cache(&pool, kBlockSize);
  const BlockId parent = pool.allocate();
  const BlockId child = pool.allocate();
  cache.insert(block_of(1, 0, parent));
  cache.insert(block_of(2, 1, child));
  cache.release(parent);
  EXPECT_FALSE(cache.verify().ok());
}

}  // namespace prefix_cache_test
}  // namespace troupe
