#include "sim/fleet/oracle_caches.h"

#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

// A prompt of one full block and the beginning of another, whose id covers both.
TraceRequest prompt(uint64_t full, uint64_t partial) {
  TraceRequest request;
  request.block_tokens = 16;
  request.input_tokens = 16 + 5;
  request.blocks = {full, partial};
  return request;
}

TEST(Bounds, PartialBlockIsSeenForEverAndPooledWhileThereIsRoom) {
  PooledLru cache(64);
  EXPECT_EQ(cache.serve(prompt(1, 100)).infinite, 0);
  EXPECT_EQ(cache.serve(prompt(1, 100)).pooled, 21);
  for (uint64_t other = 2; other < 6; ++other) cache.serve(prompt(other, 100 * other));
  const PooledLru::Hits after = cache.serve(prompt(1, 100));
  EXPECT_EQ(after.infinite, 21);
  EXPECT_EQ(after.pooled, 0);
  EXPECT_EQ(cache.serve(prompt(1, 100)).pooled, 21);
  EXPECT_LE(cache.tokens_held(), 64);
}

TEST(Bounds, RunsOfEvictedBlocksAreReused) {
  constexpr int64_t kBlocks = 100;
  PooledLru cache(16 * kBlocks);
  for (uint64_t i = 0; i < 10'000; ++i) {
    cache.serve(prompt(1, 1000 + i));
    ASSERT_LE(cache.tokens_held(), 16 * kBlocks);
  }
  // Five tokens each, except the full block that they share; and one more prompt evicts another.
  EXPECT_LE(cache.run_count(), static_cast<size_t>((16 * kBlocks - 16) / 5 + 2));
  EXPECT_EQ(cache.serve(prompt(1, 1000)).infinite, 21);
  EXPECT_EQ(cache.serve(prompt(1, 1000)).pooled, 21);
}

TEST(Bounds, SmallIdsAreDistinguished) {
  PooledLru cache(-1);
  TraceRequest request;
  request.block_tokens = 1;
  request.input_tokens = 3;
  for (uint64_t a = 0; a < 30; ++a) {
    for (uint64_t b = 0; b < 30; ++b) {
      request.blocks = {a, 30 + 30 * a + b, 1000 + 30 * a + b};
      EXPECT_EQ(cache.serve(request).infinite, b > 0 ? 1 : 0) << a << ", " << b;
      EXPECT_EQ(cache.serve(request).infinite, 3) << a << ", " << b;
    }
  }
}

}  // namespace
}  // namespace troupe::sim
