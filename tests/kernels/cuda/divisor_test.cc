// Quotients of what the device divides by often.

#include <gtest/gtest.h>

#include <limits>

#include "kernels/cuda/device/device.cuh"

namespace troupe::divisor_test {

TEST(Divisor, IsExactForEveryNumberThatIsNotNegative) {
  constexpr int kMost = std::numeric_limits<int>::max();
  constexpr int kLargest[] = {4095, 4096, 4097, 1 << 20, (1 << 29) + 1, (1 << 30) - 1, 1 << 30};
  const auto check = [](int divisor) {
    const cuda::Divisor by(divisor);
    for (int64_t multiple = 0; multiple <= kMost; multiple += int64_t{divisor} * (1 + multiple / 4096)) {
      for (const int64_t n : {multiple - 1, multiple, multiple + 1, multiple + divisor - 1}) {
        if (n < 0 || n > kMost) continue;
        ASSERT_EQ(by.quotient(static_cast<int>(n)), n / divisor) << n << " by " << divisor;
      }
    }
    for (int n = kMost; n > kMost - 300; --n)
      ASSERT_EQ(by.quotient(n), n / divisor) << n << " by " << divisor;
  };
  for (int divisor = 1; divisor <= 300; ++divisor) check(divisor);
  for (const int divisor : kLargest) check(divisor);
  EXPECT_EQ(cuda::Divisor().quotient(kMost), kMost) << "by one";
}

}  // namespace troupe::divisor_test
