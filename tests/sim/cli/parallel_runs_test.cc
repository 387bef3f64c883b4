#include "sim/cli/parallel_runs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "tests/sim/simulator_testing.h"

namespace troupe::sim {
namespace simulator_test {

TEST(ParallelRuns, EachRunIsDoneOnceWithAnyNumberOfJobs) {
  for (const int64_t jobs : {1, 2, 5, 50}) {
    std::vector<std::atomic<int>> done(20);
    EXPECT_TRUE(parallel_runs(done.size(), jobs, [&](size_t i) {
                  done[i] += 1;
                  return absl::OkStatus();
                }).ok());
    for (const std::atomic<int>& count : done) EXPECT_EQ(count, 1) << jobs << " jobs";
  }
  EXPECT_TRUE(parallel_runs(0, 4, [](size_t) { return absl::InternalError("there is no work"); }).ok());
}

TEST(ParallelRuns, JobsRunAtOnce) {
  std::latch all(3);
  EXPECT_TRUE(parallel_runs(3, 3, [&](size_t) {
                all.arrive_and_wait();  // for ever, were they fewer
                return absl::OkStatus();
              }).ok());
  const std::thread::id here = std::this_thread::get_id();
  EXPECT_TRUE(parallel_runs(3, 1, [&](size_t) {
                EXPECT_EQ(std::this_thread::get_id(), here);
                return absl::OkStatus();
              }).ok());
}

TEST(ParallelRuns, FirstFailureByNumberIsReturnedAndNoRunBeginsAfterOne) {
  std::latch both(2);
  const Status failed = parallel_runs(2, 2, [&](size_t i) {
    both.arrive_and_wait();
    return absl::InternalError(i == 0 ? "first" : "second");
  });
  EXPECT_EQ(failed.message(), "first");
  int begun = 0;
  EXPECT_EQ(parallel_runs(10, 1,
                          [&](size_t i) {
                            ++begun;
                            return i == 3 ? absl::InternalError("the fourth") : absl::OkStatus();
                          })
                .message(),
            "the fourth");
  EXPECT_EQ(begun, 4);
}

TEST(ParallelRuns, JobsDefaultToTheCoresWithinABound) {
  EXPECT_GE(jobs_of(0), 1);
  EXPECT_LE(jobs_of(0), kJobsByItself);
  EXPECT_EQ(jobs_of(20), 20);
}

// Nothing that simulations share is written to (checked by TSan).
TEST(ParallelRuns, SimulationsAreIndependent) {
  SimulationOptions options = options_of(4, 2);
  const Result alone = run_personas(kSmall, options);
  std::vector<Result> results(3);
  EXPECT_TRUE(parallel_runs(results.size(), 3, [&](size_t i) {
                results[i] = run_personas(kSmall, options);
                return absl::OkStatus();
              }).ok());
  for (const Result& result : results) {
    EXPECT_EQ(result.hit_tokens, alone.hit_tokens);
    EXPECT_EQ(result.events, alone.events);
    EXPECT_EQ(result.ttft_ms.p99, alone.ttft_ms.p99);
  }
}

}  // namespace simulator_test
}  // namespace troupe::sim
