#include "worker/schedule/set_work.h"

#include <gtest/gtest.h>

#include "tests/worker/schedule/driver.h"

namespace troupe::set_work_test {

Hash128 named(uint64_t name) {
  return Hash128{0, name};
}

int64_t work_of(const SetWork& work, Hash128 set) {
  for (const auto& total : work.totals()) {
    if (total.set == set) return total.work_tokens_total;
  }
  return -1;
}

TEST(SetWork, SumsTokensAndKeepsPrefixLengthPerSet) {
  SetWork work(4);
  work.add(named(1), 100, 30);
  work.add(named(2), 50, 7);
  work.add(named(1), 0, 5);  // a request that does not say how long its prefix is
  work.add(named(0), 10, 99);
  ASSERT_EQ(work.totals().size(), 2u);
  EXPECT_EQ(work_of(work, named(1)), 35);
  EXPECT_EQ(work_of(work, named(2)), 7);
  EXPECT_EQ(work.totals()[0].prefix_count, 100);
}

TEST(SetWork, ForgetsLongestIdleSetBeyondItsLimit) {
  SetWork work(2);
  work.add(named(1), 0, 1);
  work.add(named(2), 0, 1);
  work.add(named(1), 0, 1);
  work.add(named(3), 0, 1);
  EXPECT_EQ(work_of(work, named(2)), -1);
  EXPECT_EQ(work_of(work, named(1)), 2);
  for (uint64_t name = 10; name < 1000; ++name) work.add(named(name), 0, 1);
  EXPECT_EQ(work.totals().size(), 2u);
  EXPECT_EQ(work_of(work, named(999)), 1);
  work.add(named(1), 0, 4);  // back: from zero
  EXPECT_EQ(work_of(work, named(1)), 4);
}

TEST(SetWork, StaysEmptyWithoutSets) {
  SetWork work(0);
  work.add(named(1), 0, 1);
  EXPECT_TRUE(work.totals().empty());
}

TEST(SetWork, CountsTokensComputedByScheduler) {
  testing::Driver driver(testing::config_of(64));
  for (RequestId id = 1; id <= 2; ++id) {
    NewRequest request;
    request.id = id;
    request.prompt = testing::joined(testing::tokens_from(0, 20), testing::tokens_from(100 * TokenId(id), 3));
    request.max_new_count = 5;
    request.spec.set = named(7);
    request.spec.prefix_count = 20;
    ASSERT_TRUE(driver.scheduler.add(std::move(request)).ok());
    driver.run_until_idle();
  }
  // The second finds the first's 20 tokens cached.
  EXPECT_EQ(work_of(driver.scheduler.set_work(), named(7)), 23 + 4 + 3 + 4);
  EXPECT_EQ(driver.scheduler.set_work().totals()[0].prefix_count, 20);
}

TEST(SetWork, StaysEmptyIfSimulationSkipsIt) {
  SchedulerConfig config = testing::config_of(64);
  config.simulation.skip_set_work = true;
  testing::Driver driver(config);
  NewRequest request;
  request.id = 1;
  request.prompt = testing::tokens_from(0, 20);
  request.max_new_count = 5;
  request.spec.set = named(7);
  ASSERT_TRUE(driver.scheduler.add(std::move(request)).ok());
  driver.run_until_idle();
  EXPECT_TRUE(driver.scheduler.set_work().totals().empty());
}

}  // namespace troupe::set_work_test
