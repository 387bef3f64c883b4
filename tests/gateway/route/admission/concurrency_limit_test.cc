#include "gateway/route/admission/concurrency_limit.h"

#include <gtest/gtest.h>

namespace troupe::route {
namespace places_test {

TimePoint at(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

TEST(ConcurrencyLimit, PlacesAreTakenAndReleased) {
  ConcurrencyLimit places;
  EXPECT_TRUE(places.enter(2, at(0)));
  EXPECT_TRUE(places.enter(2, at(0)));
  EXPECT_FALSE(places.enter(2, at(0)));
  EXPECT_TRUE(places.enter(3, at(0))) << "the limit has changed";
  places.leave(at(1));
  EXPECT_EQ(places.taken(), 2);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(places.enter(0, at(1))) << "endless";
}

// All places are taken and `per_s` become free and are taken again, for ten seconds.
double busy(ConcurrencyLimit& places, int64_t most, double per_s) {
  double now = 0;
  for (int64_t i = 0; i < most; ++i) places.enter(most, at(now));
  while (now < 10) {
    places.leave(at(now += 1 / per_s));
    places.enter(most, at(now));
  }
  return now;
}

TEST(ConcurrencyLimit, RefusedRequestsReturnInTurn) {
  ConcurrencyLimit places;
  const double now = busy(places, 100, 10);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(seconds(places.reject(at(now))), 1) << i;
  for (int i = 0; i < 30; ++i) places.reject(at(now));
  EXPECT_NEAR(seconds(places.reject(at(now))), 5, 1);
  for (int i = 0; i < 35; ++i) places.leave(at(now + 0.01));
  EXPECT_LE(seconds(places.reject(at(now + 0.02))), 2) << "as many places have become free";
}

TEST(ConcurrencyLimit, SlowRequestsLengthenTheWait) {
  ConcurrencyLimit fast, slow;
  const double fast_now = busy(fast, 8, 20), slow_now = busy(slow, 8, 0.5);
  EXPECT_EQ(seconds(fast.reject(at(fast_now))), 1);
  EXPECT_GE(seconds(slow.reject(at(slow_now + 3))), 3) << "nothing has become free for as long";
}

TEST(ConcurrencyLimit, WaitIsBoundedAsInTheQueue) {
  ConcurrencyLimit places;
  const double now = busy(places, 10, 2);
  Duration longest{};
  for (int i = 0; i < 100'000; ++i) longest = std::max(longest, places.reject(at(now)));
  EXPECT_EQ(longest, kComeBackMax);
  for (int i = 0; i < 250; ++i) {
    places.leave(at(now));
    places.enter(10, at(now));
  }
  EXPECT_LE(seconds(places.reject(at(now))), 2) << "and a crowd that has gone is forgotten";
}

}  // namespace places_test
}  // namespace troupe::route
