// The measure itself: it tells linear jobs from quadratic ones, small costs included.

#include "tests/hostile/cpu_growth.h"

#include <algorithm>

namespace troupe {
namespace cpu_growth_test {

volatile size_t sink = 0;

::testing::AssertionResult measured(const GrowthMeter::Job& job) {
  return GrowthMeter([](size_t bytes) { return std::string(bytes, 'a'); }, job).is_near_linear();
}

TEST(CpuGrowth, LinearJobsPass) {
  EXPECT_TRUE(measured([](const std::string& text) {
    for (const char c : text) sink = sink * 31 + static_cast<size_t>(c);
  }));
  EXPECT_TRUE(measured([](const std::string& text) {
    std::string sorted = text;
    for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = static_cast<char>(i * 2654435761u >> 7);
    std::sort(sorted.begin(), sorted.end());
    sink = sink + static_cast<size_t>(sorted[0]);
  })) << "n log n passes, too";
}

// A busy machine may hide in one try what another one shows.
bool noticed(const std::function<void(const std::string&)>& job) {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i) {
    if (!measured(job)) return true;
  }
  return false;
}

TEST(CpuGrowth, QuadraticJobsFail) {
  if (kSanitized) GTEST_SKIP() << "no time is measured under sanitizers";
  EXPECT_TRUE(noticed([](const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      for (size_t j = i; j < text.size(); ++j) sink = sink + static_cast<size_t>(text[j]);
    }
  }));
  // A byte taken off the front: only memory is moved, a thousandth of the cost of a loop.
  EXPECT_TRUE(noticed([](const std::string& text) {
    std::string rest = text;
    while (!rest.empty()) rest.erase(0, 1);
  }));
}

}  // namespace cpu_growth_test
}  // namespace troupe
