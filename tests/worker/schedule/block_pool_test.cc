#include "worker/schedule/block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace troupe {
namespace block_pool_test {

TEST(BlockPool, GivesEveryBlockOnceThenMinusOne) {
  BlockPool pool(5);
  std::set<BlockId> seen;
  for (int i = 0; i < 5; ++i) seen.insert(pool.allocate());
  EXPECT_EQ(seen, (std::set<BlockId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.allocate(), -1);
  EXPECT_EQ(pool.used_count(), 5);
  EXPECT_TRUE(pool.verify().ok());
}

TEST(BlockPool, ABlockIsFreeCachedOrUsed) {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  pool.add_reference(block);
  pool.mark_cached(block, true);
  EXPECT_EQ(pool.used_count(), 1);
  EXPECT_EQ(pool.cached_count(), 0);  // referenced: not evictable
  EXPECT_EQ(pool.drop_reference(block), 1);
  EXPECT_EQ(pool.drop_reference(block), 0);
  EXPECT_EQ(pool.used_count(), 0);
  EXPECT_EQ(pool.cached_count(), 1);
  EXPECT_TRUE(pool.verify().ok());
  pool.add_reference(block);  // found again
  EXPECT_EQ(pool.cached_count(), 0);
  pool.drop_reference(block);
  pool.mark_cached(block, false);
  pool.release(block);
  EXPECT_EQ(pool.free_count(), 2);
  EXPECT_TRUE(pool.verify().ok());
}

TEST(BlockPool, ABlockThatBelongsToNobodyFailsVerify) {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  pool.drop_reference(block);
  EXPECT_FALSE(pool.verify().ok());
  pool.release(block);
  EXPECT_TRUE(pool.verify().ok());
}

TEST(BlockPoolDeathTest, MisuseAborts) {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  EXPECT_DEATH(pool.release(block), "freed while referenced");
  pool.drop_reference(block);
  EXPECT_DEATH(pool.drop_reference(block), "without a reference");
  pool.release(block);
  EXPECT_DEATH(pool.release(block), "freed twice");
  EXPECT_DEATH(pool.add_reference(block), "referenced while free");
}

}  // namespace block_pool_test
}  // namespace troupe
