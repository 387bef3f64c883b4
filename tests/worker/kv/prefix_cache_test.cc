#include "worker/kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/kv/cached_prompts.h"

namespace troupe {
namespace prefix_cache_test {

using namespace testing;
using PrefixCacheTest = Cache;

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

}  // namespace prefix_cache_test
}  // namespace troupe
