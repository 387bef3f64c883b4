#include "gateway/route/admission/key_usage.h"

#include <gtest/gtest.h>

#include <chrono>

namespace troupe::route {
namespace key_usage_test {

constexpr TimePoint kStart{};

KeyRights rights_of(int64_t requests_at_once) {
  KeyRights rights;
  rights.quota.requests_at_once = requests_at_once;
  return rights;
}

int64_t let_in(KeyUsage& usage, int count) {
  int64_t number = 0;
  for (int i = 0; i < count; ++i) number += usage.begin(kStart) ? 0 : 1;
  return number;
}

TEST(KeyUsage, EachGatewayEnforcesItsPart) {
  KeyRights rights = rights_of(9);
  rights.admission.limits.requests = 6;
  rights.admission.limits.tokens = 300;
  rights.priority = 2;
  int64_t number = 0;
  for (int64_t index = 0; index < 3; ++index) {
    KeyUsage usage(rights, kStart);
    usage.share({index, 3}, kStart);
    number += let_in(usage, 9);
    EXPECT_EQ(usage.admission().limits.requests, 2);
    EXPECT_EQ(usage.admission().limits.tokens, 100);
    EXPECT_EQ(usage.priority(), 2);
  }
  EXPECT_EQ(number, 9);
}

TEST(KeyUsage, UntilItsPlaceIsKnownAGatewayEnforcesAllOfALimit) {
  KeyUsage usage(rights_of(4), kStart);
  EXPECT_EQ(let_in(usage, 9), 4);
}

TEST(KeyUsage, ChangedRightsKeepThePlaceAndTheUse) {
  KeyUsage usage(rights_of(8), kStart);
  usage.share({0, 2}, kStart);
  EXPECT_EQ(let_in(usage, 3), 3);
  usage.change(rights_of(10), kStart);
  EXPECT_EQ(let_in(usage, 9), 2) << "five of ten at this gateway, of which three are used";
  usage.end(0, kStart);
  EXPECT_EQ(let_in(usage, 9), 1);
}

TEST(KeyUsage, TokensAreChargedAtTheEnd) {
  KeyRights rights;
  rights.quota.tokens_per_min = 60;
  KeyUsage usage(rights, kStart);
  EXPECT_EQ(let_in(usage, 1), 1);
  usage.end(120, kStart);
  const auto refusal = usage.begin(kStart);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->limit, Quota::Limit::kTokensPerMinute);
  EXPECT_FALSE(usage.begin(kStart + refusal->wait).has_value());
}

}  // namespace key_usage_test
}  // namespace troupe::route
