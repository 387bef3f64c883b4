// TROUPE_CHECK: silent where the condition holds, and a process's last line where it does not.

#include "common/core/check.h"

#include <gtest/gtest.h>

#include <string>

namespace troupe::check_test {

constexpr int kLine = __LINE__ + 2;
void allocate(int count, int free_count) {
  TROUPE_CHECK(count <= free_count, std::to_string(count) + " blocks are not free");
}

TEST(CheckDeathTest, AFailureNamesPlaceConditionAndMessageAndAborts) {
  allocate(1, 1);
  EXPECT_EXIT(allocate(2, 1), ::testing::KilledBySignal(SIGABRT),
              "tests/common/core/check_test.cc:" + std::to_string(kLine) +
                  ": check failed: count <= free_count: 2 blocks are not free\n$");
}

TEST(Check, AMessageIsBuiltOnlyOnFailureAndAConditionOnce) {
  int conditions = 0;
  int messages = 0;
  const auto message = [&] { return std::to_string(++messages); };
  TROUPE_CHECK(++conditions > 0, message());
  EXPECT_EQ(conditions, 1);
  EXPECT_EQ(messages, 0);
}

TEST(Check, ItIsOneStatementUnderAnIfWithoutBraces) {
  bool otherwise = false;
  if (false)
    TROUPE_CHECK(false, "not reached");
  else
    otherwise = true;
  EXPECT_TRUE(otherwise);
}

}  // namespace troupe::check_test
