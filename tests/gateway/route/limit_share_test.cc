#include "gateway/route/limit_share.h"

#include <gtest/gtest.h>

namespace troupe::route {
namespace limit_share_test {

TimePoint at(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

TEST(LimitShare, AllTogetherLetThroughNoMoreThanTheLimit) {
  for (int64_t limit = 1; limit < 200; ++limit) {
    for (int64_t gateways = 1; gateways <= 16; ++gateways) {
      const int64_t all = gateways * share_of(limit, gateways);
      EXPECT_LE(all, std::max(limit, gateways)) << limit << " of " << gateways;
      EXPECT_GT(all, limit - gateways) << limit << " of " << gateways;
    }
  }
}

TEST(LimitShare, NoLimitStaysNoneAndASmallOneStaysOne) {
  EXPECT_EQ(share_of(int64_t{0}, 4), 0);
  EXPECT_EQ(share_of(int64_t{1}, 4), 1);
  EXPECT_EQ(share_of(int64_t{7}, 0), 7) << "nobody knows how many: one";
  const AdmissionOptions none = share_of(AdmissionOptions{}, 4);
  EXPECT_EQ(none.total.requests, 0);
  EXPECT_EQ(none.queue_max, AdmissionOptions{}.queue_max) << "each gateway's own";
}

TEST(LimitShare, WhatAKeyHasUsedCountsOnWhenGatewaysComeAndGo) {
  const QuotaLimits limits{.tokens_per_min = 6000};
  Quota quota(share_of(limits, 1), at(0));
  ASSERT_FALSE(quota.begin(at(0)).has_value());
  quota.end(2000, at(0));
  quota.change(share_of(limits, 2), at(0));  // 3000, of which 2000 are used
  ASSERT_FALSE(quota.begin(at(0)).has_value());
  quota.end(1000, at(0));
  EXPECT_TRUE(quota.begin(at(0)).has_value());
  quota.change(share_of(limits, 1), at(0));
  EXPECT_FALSE(quota.begin(at(0)).has_value()) << "the other's part is left";
  quota.end(3000, at(0));
  EXPECT_TRUE(quota.begin(at(0)).has_value());
}

TEST(LimitShare, OfSeveralGatewaysEachLetsItsPartOfRequestsThrough) {
  const QuotaLimits limits{.requests_per_s = 30};
  int let_in = 0;
  Quota quotas[3] = {
      {share_of(limits, 3), at(0)}, {share_of(limits, 3), at(0)}, {share_of(limits, 3), at(0)}};
  for (int i = 0; i < 10'000; ++i) let_in += quotas[i % 3].begin(at(i * 0.001)) ? 0 : 1;
  EXPECT_NEAR(let_in, 30 + 300, 3);
}

}  // namespace limit_share_test
}  // namespace troupe::route
