#include "gateway/route/admission/shard_limit.h"

#include <gtest/gtest.h>

namespace troupe::route {
namespace limit_share_test {

TimePoint at(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

TEST(LimitShare, SharesAddUpToTheLimit) {
  for (int64_t limit = 1; limit < 200; ++limit) {
    for (int64_t gateways = 1; gateways <= 16; ++gateways) {
      int64_t all = 0;
      for (int64_t i = 0; i < gateways; ++i) all += share_of(limit, {i, gateways});
      EXPECT_EQ(all, std::max(limit, gateways)) << limit << " of " << gateways;
    }
  }
}

TEST(LimitShare, SharesDifferByAtMostOne) {
  EXPECT_EQ(share_of(int64_t{8}, {0, 3}), 3);
  EXPECT_EQ(share_of(int64_t{8}, {1, 3}), 3);
  EXPECT_EQ(share_of(int64_t{8}, {2, 3}), 2);
  EXPECT_EQ(share_of(int64_t{8}, {0, 4}), share_of(int64_t{8}, {3, 4}));
}

// A gateway that knows only the number (route.gateways) may be any of them: the remainder goes to none.
TEST(LimitShare, UnknownPlaceGetsNoRemainder) {
  EXPECT_EQ(of_at_least({0, 1}, 1), (GatewayShard{0, 1}));
  EXPECT_EQ(of_at_least({1, 3}, 2), (GatewayShard{1, 3}));
  for (int64_t limit = 4; limit < 50; ++limit) EXPECT_LE(4 * share_of(limit, of_at_least({0, 1}, 4)), limit);
}

TEST(LimitShare, ZeroStaysUnlimitedAndSmallLimitsStayOne) {
  EXPECT_EQ(share_of(int64_t{0}, {0, 4}), 0);
  EXPECT_EQ(share_of(int64_t{1}, {3, 4}), 1);
  EXPECT_EQ(share_of(int64_t{7}, {0, 0}), 7) << "nobody knows how many: one";
  const AdmissionOptions none = share_of(AdmissionOptions{}, {0, 4});
  EXPECT_EQ(none.total.requests, 0);
  EXPECT_EQ(none.queue_max, AdmissionOptions{}.queue_max) << "each gateway's own";
}

TEST(LimitShare, UsageCountsOnWhenGatewaysComeAndGo) {
  const QuotaLimits limits{.tokens_per_min = 6000};
  Quota quota(share_of(limits, {0, 1}), at(0));
  ASSERT_FALSE(quota.begin(at(0)).has_value());
  quota.end(2000, at(0));
  quota.change(share_of(limits, {0, 2}), at(0));  // 3000, of which 2000 are used
  ASSERT_FALSE(quota.begin(at(0)).has_value());
  quota.end(1000, at(0));
  EXPECT_TRUE(quota.begin(at(0)).has_value());
  quota.change(share_of(limits, {0, 1}), at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value()) << "the other's part is left";
  quota.end(3000, at(0));
  EXPECT_TRUE(quota.begin(at(0)).has_value());
}

TEST(LimitShare, EachGatewayAdmitsItsShareOfRequests) {
  const QuotaLimits limits{.requests_per_s = 30};
  int let_in = 0;
  Quota quotas[3] = {{share_of(limits, {0, 3}), at(0)},
                     {share_of(limits, {1, 3}), at(0)},
                     {share_of(limits, {2, 3}), at(0)}};
  for (int i = 0; i < 10'000; ++i) let_in += quotas[i % 3].begin(at(i * 0.001)) ? 0 : 1;
  EXPECT_NEAR(let_in, 30 + 300, 3);
}

}  // namespace limit_share_test
}  // namespace troupe::route
