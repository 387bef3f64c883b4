// Admission, passing and preemption when there is not enough KV memory for all.

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace scheduler_memory_test {

using namespace testing;

// Admission without a reserve, so that blocks do run out.
SchedulerConfig careless(int32_t block_count) {
  SchedulerConfig config = config_of(block_count);
  config.output_reserve = OutputReserve::kNone;
  return config;
}

TEST(SchedulerMemory, PreemptedYoungestContinuesWithItsOwnTokens) {
  SchedulerConfig config = careless(10);  // 40 tokens
  config.enable_prefix_caching = false;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 12), 20).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 12), 20).ok());
  driver.run_until_idle();
  EXPECT_GE(driver.scheduler.stats().preemptions_total, 1);
  EXPECT_EQ(driver.finished, (std::vector<RequestId>{1, 2}));
  std::vector<TokenId> expected = tokens_from(1'000'000, 20);
  EXPECT_EQ(driver.sampled[1], expected);
  EXPECT_EQ(driver.sampled[2], expected);  // nothing emitted twice, nothing lost
}

TEST(SchedulerMemory, PreemptedRequestReusesItsCachedBlocks) {
  Driver driver(careless(12));  // 48 tokens: both reach 24, then one gives way
  ASSERT_TRUE(driver.add(1, tokens_from(0, 12), 20).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 12), 20).ok());
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.stats().preemptions_total, 1);
  // The other took two of its six blocks before it ended; the rest was still there.
  EXPECT_EQ(driver.scheduler.stats().computed_tokens_total, 2 * (12 + 19) + 2 * 4);
}

TEST(SchedulerMemory, StepWithPreemptionAdmitsNoRequest) {
  SchedulerConfig config = careless(12);  // 48 tokens: both reach 24, then one gives way
  config.enable_prefix_caching = false;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 12), 20).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 12), 20).ok());
  while (driver.scheduler.stats().blocks_free > 0) driver.step();
  ASSERT_TRUE(driver.add(3, tokens_from(200, 4), 2).ok());
  while (driver.scheduler.stats().preemptions_total == 0) {
    EXPECT_FALSE(driver.step().contains(3));
  }
  EXPECT_TRUE(driver.step().contains(3));
  driver.run_until_idle();
}

TEST(SchedulerMemory, LargeCacheEvictsForSeveralDecodesAtOnce) {
  SchedulerConfig config = careless(2048);  // blocks of 4 tokens; a thousandth is two
  config.max_num_batched_tokens = config.max_model_len = 8192;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4 * 2000), 1).ok());
  driver.run_until_idle();
  ASSERT_TRUE(driver.add(2, tokens_from(100'000, 4 * 40), 60).ok());  // 15 blocks of answer
  std::vector<int64_t> gone;
  for (int64_t before = 0; driver.scheduler.stats().running + driver.scheduler.stats().waiting > 0;) {
    driver.step();
    const int64_t now = driver.scheduler.stats().evicted_blocks_total;
    if (now > before) gone.push_back(now - before);
    before = now;
  }
  ASSERT_FALSE(gone.empty());
  for (const int64_t count : gone) EXPECT_EQ(count, 3);  // the one that is needed, and two ahead
}

TEST(SchedulerMemory, SmallRequestPassesOneThatDoesNotFit) {
  Driver driver(config_of(12));  // 48 tokens
  ASSERT_TRUE(driver.add(1, tokens_from(0, 16), 10).ok());
  driver.step();
  ASSERT_TRUE(driver.add(2, tokens_from(100, 40), 2).ok());
  ASSERT_TRUE(driver.add(3, tokens_from(200, 8), 2).ok());
  const auto counts = driver.step();
  EXPECT_FALSE(counts.contains(2));
  EXPECT_TRUE(counts.contains(3));
  driver.run_until_idle();
}

TEST(SchedulerMemory, LargeRequestIsPassedAtMostMaxPassesTimes) {
  SchedulerConfig config = config_of(12);
  config.max_passes = 3;
  config.enable_prefix_caching = false;
  Driver driver(config);
  RequestId next_id = 100;
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4), 4).ok());
  driver.step();
  ASSERT_TRUE(driver.add(2, tokens_from(0, 44), 2).ok());  // fits only alone
  int steps = 0;
  while (driver.sampled[2].empty()) {
    ASSERT_LT(++steps, 60) << "the large request starves";
    ASSERT_TRUE(driver.add(next_id++, tokens_from(0, 4), 4).ok());  // an endless stream of small ones
    driver.step();
  }
  int passed = 0;
  for (const auto& [id, sampled] : driver.sampled) passed += id >= 100 && !sampled.empty();
  EXPECT_EQ(passed, 3);
}

TEST(SchedulerMemory, AdmissionLeavesBlockForEachRunningRequest) {
  Driver driver(careless(8));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 12), 8).ok());    // 3 blocks, will need 5
  ASSERT_TRUE(driver.add(2, tokens_from(100, 20), 2).ok());  // 5 blocks: all that is left
  driver.step();
  EXPECT_EQ(driver.scheduler.stats().running, 1);
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.stats().preemptions_total, 0);
}

}  // namespace scheduler_memory_test
}  // namespace troupe
