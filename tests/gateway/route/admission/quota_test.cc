#include "gateway/route/admission/quota.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace troupe::route {
namespace quota_test {

TimePoint at(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

TEST(Quota, WithoutLimitsAllRequestsAreAdmitted) {
  Quota quota({}, at(0));
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(quota.begin(at(0)).has_value());
  for (int i = 0; i < 10'000; ++i) quota.end(1'000'000, at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value());
}

TEST(Quota, RequestsPerSecondAreLimited) {
  Quota quota({.requests_per_s = 5}, at(0));
  int let_in = 0;
  // A hundred a second for ten seconds: the bucket, and its refill meanwhile, are admitted.
  for (int i = 0; i < 1000; ++i) {
    const auto refusal = quota.begin(at(i * 0.01));
    let_in += refusal ? 0 : 1;
    if (!refusal) continue;
    EXPECT_EQ(refusal->limit, Quota::Limit::kRequestsPerSecond);
    EXPECT_GT(seconds(refusal->wait), 0);
    EXPECT_LE(seconds(refusal->wait), 0.2 + 1e-9);
  }
  EXPECT_GE(let_in, 54);
  EXPECT_LE(let_in, 55);
}

TEST(Quota, RequestIsAdmittedAfterTheReportedWait) {
  Quota quota({.requests_per_s = 0.25, .tokens_per_min = 600}, at(0));
  double now = 0;
  for (int i = 0; i < 20; ++i) {
    int waits = 0;
    for (auto refusal = quota.begin(at(now)); refusal; refusal = quota.begin(at(now))) {
      now += seconds(refusal->wait);
      ASSERT_LE(++waits, 2) << "once for each limit";
    }
    quota.end(90, at(now));
  }
  // Twenty requests of 90 tokens at ten tokens a second after the first 600, or at one request in four
  // seconds.
  EXPECT_GT(now, 110);
}

TEST(Quota, TokensAreTakenAtTheEndAndADebtDelays) {
  Quota quota({.tokens_per_min = 6000}, at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value());
  EXPECT_FALSE(quota.begin(at(0)).has_value()) << "nothing is known yet of what the first will cost";
  quota.end(8000, at(1));
  const auto refusal = quota.begin(at(1));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->limit, Quota::Limit::kTokensPerMinute);
  EXPECT_NEAR(seconds(refusal->wait), 20.01, 0.001);  // 2,000 of debt and one, at 100 a second
  EXPECT_TRUE(quota.begin(at(20)).has_value());
  EXPECT_FALSE(quota.begin(at(21.02)).has_value());
}

TEST(Quota, ConcurrentRequestsAreLimited) {
  Quota quota({.requests_at_once = 2}, at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value());
  EXPECT_FALSE(quota.begin(at(0)).has_value());
  const auto refusal = quota.begin(at(5));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->limit, Quota::Limit::kRequestsAtOnce);
  quota.end(0, at(5));
  EXPECT_FALSE(quota.begin(at(5)).has_value());
  EXPECT_EQ(quota.running(), 2);
}

TEST(Quota, WaitForAPlaceFollowsTheRateOfEnds) {
  Quota quota({.requests_at_once = 4}, at(0));
  for (int i = 0; i < 4; ++i) quota.begin(at(0));
  // One ends every half second, and the next takes its place.
  double now = 0;
  for (int i = 0; i < 40; ++i) {
    quota.end(0, at(now += 0.5));
    ASSERT_FALSE(quota.begin(at(now)).has_value());
  }
  std::vector<double> waits;
  for (int i = 0; i < 12; ++i) waits.push_back(seconds(quota.begin(at(now)).value().wait));
  EXPECT_EQ(waits.front(), 1);
  EXPECT_TRUE(std::is_sorted(waits.begin(), waits.end())) << "those who came before are ahead";
  EXPECT_NEAR(waits.back(), 6, 1);
}

TEST(Quota, RefusalTakesNothing) {
  Quota quota({.requests_per_s = 1, .requests_at_once = 1}, at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value());
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(quota.begin(at(0.5)).has_value());
  quota.end(0, at(0.9));
  EXPECT_FALSE(quota.begin(at(1.0)).has_value());
}

TEST(Quota, NewLimitsKeepUsage) {
  Quota quota({.tokens_per_min = 600}, at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value());
  quota.end(600, at(0));
  quota.change({.tokens_per_min = 1200}, at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value());
  quota.end(600, at(0));
  EXPECT_TRUE(quota.begin(at(0)).has_value()) << "1,200 are gone";
  quota.change({}, at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value());
  quota.change({.tokens_per_min = 60}, at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value()) << "a limit that was not there begins anew";
}

TEST(Quota, StandingOrFallingClockGrantsNothing) {
  Quota quota({.requests_per_s = 1}, at(100));
  EXPECT_FALSE(quota.begin(at(100)).has_value());
  EXPECT_TRUE(quota.begin(at(90)).has_value());
  EXPECT_TRUE(quota.begin(at(100)).has_value());
  EXPECT_FALSE(quota.begin(at(101)).has_value());
}

}  // namespace quota_test
}  // namespace troupe::route
