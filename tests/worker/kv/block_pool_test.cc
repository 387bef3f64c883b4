#include "worker/kv/block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace troupe {
namespace block_pool_test {

TEST(BlockSet, ContainsInsertedBlocksUntilErased) {
  BlockSet set(130);
  EXPECT_TRUE(set.insert(63));
  EXPECT_FALSE(set.insert(63));
  EXPECT_TRUE(set.insert(64));
  set.erase(63);
  EXPECT_FALSE(set.contains(63));
  EXPECT_TRUE(set.contains(64));
  EXPECT_FALSE(set.contains(65));
}

TEST(BlockSet, ErasesRangesAcrossWords) {
  for (const BlockId first : {0, 1, 63, 64, 65, 127}) {
    for (const int32_t count : {0, 1, 2, 63, 64, 65, 73}) {
      BlockSet set(200);
      set.insert_from(0);
      set.erase(first, count);
      for (BlockId block = 0; block < 200; ++block) {
        EXPECT_EQ(set.contains(block), block < first || block >= first + count) << first << " " << count;
      }
    }
  }
}

TEST(BlockSet, InsertsAllFromABlockToItsLast) {
  for (const int32_t first : {0, 1, 64, 100, 129, 130}) {
    BlockSet set(130), one_by_one(130);
    set.insert_from(first);
    for (BlockId block = first; block < 130; ++block) one_by_one.insert(block);
    EXPECT_EQ(set, one_by_one) << first;
  }
}

TEST(BlockSet, FindsFirstBlockNotInExactlyOneOfTwo) {
  BlockSet low(130), high(130);
  for (BlockId block = 0; block < 70; ++block) low.insert(block);
  high.insert_from(70);
  EXPECT_EQ(low.not_in_exactly_one(high), -1);
  high.erase(129);  // in neither
  EXPECT_EQ(low.not_in_exactly_one(high), 129);
  high.insert(69);  // in both
  EXPECT_EQ(low.not_in_exactly_one(high), 69);
}

TEST(BlockPool, AllocatesEachBlockOnceThenReturnsMinusOne) {
  BlockPool pool(5);
  std::set<BlockId> seen;
  for (int i = 0; i < 5; ++i) seen.insert(pool.allocate());
  EXPECT_EQ(seen, (std::set<BlockId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.allocate(), -1);
  EXPECT_EQ(pool.used_count(), 5);
  EXPECT_TRUE(pool.verify().ok());
}

TEST(BlockPool, CountsFreeCachedAndUsedBlocks) {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  EXPECT_FALSE(pool.is_free(block));
  EXPECT_EQ(pool.used_count(), 1);
  pool.add_cached(1);
  EXPECT_EQ(pool.used_count(), 0);
  EXPECT_EQ(pool.cached_count(), 1);
  EXPECT_TRUE(pool.verify().ok());
  pool.add_cached(-1);  // found again
  EXPECT_EQ(pool.cached_count(), 0);
  EXPECT_EQ(pool.used_count(), 1);
  pool.release(block);
  EXPECT_TRUE(pool.is_free(block));
  EXPECT_EQ(pool.free_count(), 2);
  EXPECT_TRUE(pool.verify().ok());
}

TEST(BlockPool, AllocatesSeveralInTheOrderOfSingleOnes) {
  BlockPool pool(6), twin(6);
  for (BlockPool* p : {&pool, &twin}) {
    for (int i = 0; i < 3; ++i) p->allocate();
    for (const BlockId block : {1, 0}) p->release(block);
  }
  std::vector<BlockId> several{7}, each{7};
  pool.allocate(4, several);
  for (int i = 0; i < 4; ++i) each.push_back(twin.allocate());
  EXPECT_EQ(several, each);
  EXPECT_EQ(several, (std::vector<BlockId>{7, 0, 1, 3, 4}));
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_TRUE(pool.verify().ok());
}

TEST(BlockPool, CountsOwedBlocksAsUsed) {
  BlockPool pool(3);
  pool.reserve(2);
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_EQ(pool.used_count(), 2);
  const BlockId first = pool.allocate();
  EXPECT_EQ(pool.allocate(), -1);  // the others are promised
  std::vector<BlockId> blocks;
  pool.allocate_reserved(1, blocks);
  EXPECT_NE(blocks, std::vector<BlockId>{first});
  EXPECT_EQ(pool.reserved_count(), 1);
  EXPECT_EQ(pool.used_count(), 3);
  pool.reserve(-1);
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_TRUE(pool.verify().ok());
}

TEST(BlockPoolDeathTest, MisuseAborts) {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  EXPECT_DEATH(pool.add_cached(2), "not there to be cached");
  EXPECT_DEATH(pool.reserve(2), "not free, or not reserved");
  std::vector<BlockId> blocks;
  EXPECT_DEATH(pool.allocate(2, blocks), "not free");
  EXPECT_DEATH(pool.allocate_reserved(1, blocks), "not free, or not reserved");
  EXPECT_DEATH(pool.add_cached(-1), "not there to be cached");
  pool.add_cached(1);
  EXPECT_DEATH(pool.release(block), "freed while cached");
  pool.add_cached(-1);
  pool.release(block);
  EXPECT_DEATH(pool.release(block), "freed twice");
}

}  // namespace block_pool_test
}  // namespace troupe
