#include "common/core/work_limit.h"

#include <gtest/gtest.h>

#include "tests/cpu_time.h"

namespace troupe {
namespace work_limit_test {

using End = WorkLimit::End;

// Works until it is told to stop; returns the processor time that it took. At most half a minute.
double work_on() {
  const double before = cpu_seconds();
  while (count_work(100).ok() && cpu_seconds() - before < 30) {
  }
  return cpu_seconds() - before;
}

TEST(WorkLimit, EndsAJobAfterItsProcessorTime) {
  WorkLimit limit(std::chrono::milliseconds(20), Deadline::never());
  const WorkScope scope(limit);
  EXPECT_LT(work_on(), 10);
  EXPECT_EQ(limit.end(), End::kBudget);
  EXPECT_FALSE(count_work(0).ok()) << "it stays an error";
}

TEST(WorkLimit, EndsAJobAtItsDeadline) {
  const auto now = std::chrono::steady_clock::now();
  WorkLimit limit(std::chrono::hours(1), Deadline::after(now, std::chrono::milliseconds(20)));
  const WorkScope scope(limit);
  EXPECT_LT(work_on(), 10);
  EXPECT_EQ(limit.end(), End::kDeadline);
}

TEST(WorkLimit, EndsAnAbandonedJob) {
  WorkLimit limit(std::chrono::hours(1), Deadline::never());
  const WorkScope scope(limit);
  EXPECT_TRUE(count_work(1 << 20).ok());
  limit.abandon();
  EXPECT_LT(work_on(), 10);
  EXPECT_EQ(limit.end(), End::kAbandoned);
}

TEST(WorkLimit, CountsNothingOutsideOfItsScope) {
  WorkLimit outer(Duration::zero(), Deadline::never()), inner(std::chrono::hours(1), Deadline::never());
  EXPECT_TRUE(count_work(1 << 30).ok());
  {
    const WorkScope scope(outer);
    {
      const WorkScope within(inner);
      EXPECT_TRUE(count_work(1 << 30).ok());
    }
    EXPECT_FALSE(count_work(1 << 30).ok());
  }
  EXPECT_TRUE(count_work(1 << 30).ok());
  EXPECT_EQ(inner.end(), End::kNone);
}

}  // namespace work_limit_test
}  // namespace troupe
