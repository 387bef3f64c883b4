#include "worker/schedule/evicted_blocks.h"

#include <gtest/gtest.h>

#include <cmath>

namespace troupe {
namespace evicted_blocks_test {

Hash128 name(uint64_t n) {
  return hash_bytes({reinterpret_cast<const char*>(&n), sizeof n});
}

TEST(EvictedBlocks, TellWhatTheyWereToldOnceAndRoughly) {
  constexpr int32_t kBlocks = 6400;  // a unit of time is 100 ticks
  EvictedBlocks evicted(kBlocks);
  const uint64_t now = 5'000'000'000;
  evicted.add(name(1),
              {.idle_since = now - 12'345, .user = 77, .interval = 4321, .use_count = 5, .shared = true},
              now);
  evicted.add(name(2), {.idle_since = now - 800'000, .user = 78, .use_count = 200, .returning = true}, now);
  EXPECT_FALSE(evicted.take(name(3), now));
  const auto one = evicted.take(name(1), now + 500);
  ASSERT_TRUE(one);
  EXPECT_NEAR(static_cast<double>(now - one->idle_since), 12'345, 100);
  EXPECT_TRUE(EvictedBlocks::is_same_user(*one, 77));
  EXPECT_FALSE(EvictedBlocks::is_same_user(*one, 78));
  EXPECT_LE(std::abs(std::log2(one->interval / 4321)), 0.126F) << "to a quarter of an octave";
  EXPECT_EQ(one->use_count, 5u);
  EXPECT_TRUE(one->shared);
  EXPECT_FALSE(one->returning);
  EXPECT_FALSE(evicted.take(name(1), now)) << "it was forgotten when it was found";
  const auto two = evicted.take(name(2), now);
  ASSERT_TRUE(two);
  EXPECT_NEAR(static_cast<double>(now - two->idle_since), 800'000, 100);
  EXPECT_EQ(two->interval, 0);
  EXPECT_EQ(two->use_count, 8u) << "more are the same";
  EXPECT_TRUE(two->returning);
}

TEST(EvictedBlocks, ForgetsWhatIsIdleForLongestAcrossTheWrapOfTimes) {
  EvictedBlocks evicted(1);  // one set of eight
  const uint64_t wrap = uint64_t{1} << 20;
  for (uint64_t i = 0; i < 12; ++i) evicted.add(name(i), {.idle_since = wrap - 6 + i}, wrap + 20);
  for (uint64_t i = 0; i < 12; ++i) {
    const auto found = evicted.take(name(i), wrap + 20);
    EXPECT_EQ(found.has_value(), i >= 4) << i;
    EXPECT_EQ(found.value_or(EvictedBlock{.idle_since = wrap - 6 + i}).idle_since, wrap - 6 + i);
  }
}

TEST(EvictedBlocks, HardlyEverTakesANewBlockForAnOldOne) {
  constexpr uint64_t kBlocks = 4096;
  EvictedBlocks evicted(kBlocks);
  for (uint64_t i = 0; i < 32 * kBlocks; ++i) evicted.add(name(i), {.idle_since = i}, i);
  uint64_t known = 0, strangers = 0;
  for (uint64_t i = 0; i < evicted.size(); ++i) known += evicted.at(i, 32 * kBlocks).has_value();
  EXPECT_GT(known, 7 * kBlocks);
  for (uint64_t i = 0; i < 100'000; ++i)
    strangers += evicted.take(name(1'000'000 + i), 32 * kBlocks).has_value();
  EXPECT_LT(strangers, 30u) << "8 in 2^18 are expected";
}

}  // namespace evicted_blocks_test
}  // namespace troupe
