#include "gateway/route/admission/account.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "gateway/route/admission/account_book.h"
#include "gateway/route/admission/account_record.h"

namespace troupe::route {
namespace {

using Kind = Account::Answer::Kind;

constexpr int64_t kNoon = int64_t{20'000} * 86'400'000 + 43'200'000;  // a day's middle, at a minute's begin

AccountTerms terms_of(const AccountLimits& limits, bool leased = false, int64_t gateways = 1) {
  return {limits, {0, gateways}, leased};
}

TEST(Account, RefusesByTheLimitThatIsReachedUntilItsWindowEnds) {
  Account account;
  const AccountTerms terms = terms_of({.requests_per_min = 2});
  EXPECT_EQ(account.begin(terms, 10, kNoon).kind, Kind::kAdmitted);
  EXPECT_EQ(account.begin(terms, 10, kNoon + 1000).kind, Kind::kAdmitted);
  const auto refused = account.begin(terms, 10, kNoon + 12'345);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.limit, AccountLimit::kRequestsPerMinute);
  EXPECT_EQ(refused.wait_ms, 60'000 - 12'345);
  EXPECT_EQ(account.begin(terms, 10, kNoon + 12'345 + refused.wait_ms - 1).kind, Kind::kRefused);
  EXPECT_EQ(account.begin(terms, 10, kNoon + 12'345 + refused.wait_ms).kind, Kind::kAdmitted);
}

TEST(Account, HoldsAnEstimateAndSettlesByWhatWasUsed) {
  Account account;
  const AccountTerms terms = terms_of({.tokens_per_min = 100});
  const auto first = account.begin(terms, 80, kNoon);
  EXPECT_EQ(account.tokens_view(terms, kNoon).remaining, 20);
  EXPECT_EQ(account.begin(terms, 40, kNoon).kind, Kind::kRefused) << "80 of 100 are held";
  account.settle(first.hold, 30, kNoon + 10);
  EXPECT_EQ(account.tokens_view(terms, kNoon + 10).remaining, 70);
  EXPECT_EQ(account.begin(terms, 70, kNoon + 10).kind, Kind::kAdmitted);
}

TEST(Account, WhatEndsInALaterWindowIsCountedOnce) {
  Account account;
  const AccountTerms terms = terms_of({.tokens_per_min = 100});
  const auto within = account.begin(terms, 50, kNoon);
  const auto beyond = account.begin(terms, 50, kNoon);
  account.settle(within.hold, 50, kNoon + 61'000);
  EXPECT_EQ(account.tokens_view(terms, kNoon + 61'000).remaining, 100);
  account.settle(beyond.hold, 80, kNoon + 61'000);
  EXPECT_EQ(account.tokens_view(terms, kNoon + 61'000).remaining, 70) << "30 more than were held";
}

TEST(Account, OneLargerThanTheLimitHasAnUnusedWindow) {
  Account account;
  const AccountTerms terms = terms_of({.tokens_per_min = 100});
  const auto large = account.begin(terms, 1000, kNoon);
  EXPECT_EQ(large.kind, Kind::kAdmitted);
  EXPECT_EQ(account.begin(terms, 1, kNoon).kind, Kind::kRefused);
  account.settle(large.hold, 1, kNoon);
  EXPECT_EQ(account.begin(terms, 1000, kNoon).kind, Kind::kRefused) << "one token was used";
  EXPECT_EQ(account.begin(terms, 1000, kNoon + 60'000).kind, Kind::kAdmitted);
}

TEST(Account, ADayIsOfUtcAndOutlivesMinutes) {
  Account account;
  const AccountTerms terms = terms_of({.tokens_per_day = 100});
  account.settle(account.begin(terms, 100, kNoon).hold, 100, kNoon);
  const auto refused = account.begin(terms, 1, kNoon + 3'600'000);
  EXPECT_EQ(refused.limit, AccountLimit::kTokensPerDay);
  EXPECT_EQ(refused.wait_ms, 39'600'000) << "11 hours until midnight";
  EXPECT_EQ(account.begin(terms, 1, kNoon + 43'200'000).kind, Kind::kAdmitted);
}

TEST(Account, AnEstimateWithoutBoundsIsAHoldLikeAnother) {
  Account account;
  const AccountTerms terms = terms_of({.tokens_per_min = 100, .tokens_per_day = 1000});
  const auto first = account.begin(terms, INT64_MAX, kNoon);
  EXPECT_EQ(first.kind, Kind::kAdmitted);
  for (const int64_t tokens : {int64_t{1}, int64_t{100}, INT64_MAX})
    EXPECT_EQ(account.begin(terms, tokens, kNoon).kind, Kind::kRefused) << tokens;
  account.settle(first.hold, 40, kNoon + 10);
  EXPECT_EQ(account.tokens_view(terms, kNoon + 10).remaining, 60);
}

TEST(Account, AClockThatIsPutRightHoldsNobodyUpUntilItsWrongTime) {
  constexpr int64_t kHour = 3'600'000;
  Account account;
  const AccountTerms terms = terms_of({.requests_per_min = 1});
  EXPECT_EQ(account.begin(terms, 1, kNoon + kHour).kind, Kind::kAdmitted) << "the clock is an hour ahead";
  EXPECT_EQ(account.begin(terms, 1, kNoon).kind, Kind::kAdmitted);
  const auto refused = account.begin(terms, 1, kNoon + 10'000);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.wait_ms, 50'000);
  EXPECT_EQ(account.begin(terms, 1, kNoon + 60'000).kind, Kind::kAdmitted);
  EXPECT_EQ(account.begin(terms, 1, kNoon + 59'000).kind, Kind::kRefused) << "a small step begins no window";
}

TEST(Account, RequestsAtOnceAreFreeAgainWhenOneEnds) {
  Account account;
  const AccountTerms terms = terms_of({.requests_at_once = 1});
  const auto first = account.begin(terms, 1, kNoon);
  EXPECT_EQ(account.begin(terms, 1, kNoon).limit, AccountLimit::kRequestsAtOnce);
  account.settle(first.hold, 5, kNoon);
  EXPECT_EQ(account.begin(terms, 1, kNoon).kind, Kind::kAdmitted);
}

TEST(Account, ARefusedRequestHasTakenNothing) {
  Account account;
  const AccountTerms terms = terms_of({.requests_per_min = 10, .tokens_per_min = 10});
  EXPECT_EQ(account.begin(terms, 10, kNoon).kind, Kind::kAdmitted);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(account.begin(terms, 5, kNoon).limit, AccountLimit::kTokensPerMinute);
  EXPECT_EQ(account.requests_view(terms, kNoon).remaining, 9);
}

TEST(Account, WithoutAStoreGatewaysHaveParts) {
  int64_t admitted = 0;
  for (int64_t index = 0; index < 3; ++index) {
    Account account;
    const AccountTerms terms{{.requests_per_min = 10}, {index, 3}, false};
    while (account.begin(terms, 1, kNoon).kind == Kind::kAdmitted) ++admitted;
  }
  EXPECT_EQ(admitted, 10);
}

TEST(Account, ARequestThatTakesNoTokensIsNotHeldUpByTheirLimits) {
  Account account;
  const AccountTerms terms = terms_of({.requests_per_min = 3, .tokens_per_day = 100});
  account.settle(account.begin(terms, 100, kNoon).hold, 120, kNoon);
  ASSERT_EQ(account.begin(terms, 1, kNoon).kind, Kind::kRefused);
  const auto count = account.begin(terms, 0, kNoon);
  ASSERT_EQ(count.kind, Kind::kAdmitted);
  account.settle(count.hold, 0, kNoon);
  EXPECT_EQ(account.requests_view(terms, kNoon).remaining, 1);
  EXPECT_EQ(account.begin(terms, 0, kNoon).kind, Kind::kAdmitted);
  EXPECT_EQ(account.begin(terms, 0, kNoon).limit, AccountLimit::kRequestsPerMinute);
}

TEST(AccountRecord, ReadsWhatItWrites) {
  AccountRecord record;
  record.windows = {7, 8, 9};
  record.granted = {1, 200, 3000};
  EXPECT_EQ(AccountRecord::parse(record.text()), record);
  for (const char* bad :
       {"", "1:2", "1:2 3:4", "1:2 3:4 5:", "1:2 3:4 5:6 ", "x:2 3:4 5:6", "1:2 3:4 5:6 7:8"})
    EXPECT_FALSE(AccountRecord::parse(bad)) << bad;
}

// Gateways over one record, whose answers may be lost after they took effect.
struct Fleet {
  explicit Fleet(int64_t gateways, const AccountLimits& limits, uint32_t seed)
      : accounts(static_cast<size_t>(gateways)), terms{limits, {0, gateways}, true}, random(seed) {}

  Account::Answer begin(size_t gateway, int64_t tokens, int64_t now, double lost) {
    Account& account = accounts[gateway];
    Account::Answer answer = account.begin(terms, tokens, now);
    for (int tries = 0; answer.kind == Kind::kAsk && tries < 4; ++tries) {
      const AccountWant want = account.want(terms, tokens, now);
      const AccountGrant grant = record.take(want, terms.limits, terms.place.of);
      if (std::uniform_real_distribution<>(0, 1)(random) < lost) continue;
      account.granted(grant, now);
      answer = account.begin(terms, tokens, now);
      if (answer.kind == Kind::kAsk) account.store_is_dry(now + 100);
      if (answer.kind == Kind::kAsk) answer = account.begin(terms, tokens, now);
    }
    return answer;
  }

  std::vector<Account> accounts;
  AccountTerms terms;
  AccountRecord record;
  std::mt19937 random;
};

TEST(LeasedAccounts, TogetherLetInTheLimitExactlyHoweverUnevenTheTraffic) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const int64_t gateways = 1 + seed % 4, limit = 1 + (seed * 37) % 120;
    Fleet fleet(gateways, {.requests_per_min = limit}, seed);
    int64_t admitted = 0;
    std::geometric_distribution<size_t> uneven(0.6);
    for (int i = 0; i < 400; ++i) {
      const size_t gateway = uneven(fleet.random) % static_cast<size_t>(gateways);
      admitted += fleet.begin(gateway, 1, kNoon + i, 0).kind == Kind::kAdmitted ? 1 : 0;
      ASSERT_LE(admitted, limit);
    }
    for (size_t gateway = 0; gateway < fleet.accounts.size(); ++gateway)
      for (int i = 0; i < 200; ++i)
        admitted += fleet.begin(gateway, 1, kNoon + 500 + i * 101, 0).kind == Kind::kAdmitted ? 1 : 0;
    EXPECT_EQ(admitted, limit) << gateways << " gateways, seed " << seed;
  }
}

TEST(LeasedAccounts, LostAnswersLoseRoomAndNeverAddAny) {
  int64_t short_of = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Fleet fleet(3, {.requests_per_min = 50}, seed);
    int64_t admitted = 0;
    for (int i = 0; i < 600; ++i)
      admitted += fleet.begin(static_cast<size_t>(i) % 3, 1, kNoon + i, 0.2).kind == Kind::kAdmitted ? 1 : 0;
    ASSERT_LE(admitted, 50);
    short_of += 50 - admitted;
  }
  EXPECT_GT(short_of, 0);
}

TEST(LeasedAccounts, WhatIsUsedBeyondAGrantIsToldAndWhatIsNotUsedGivenBack) {
  Fleet fleet(2, {.tokens_per_min = 1000}, 1);
  const auto first = fleet.begin(0, 400, kNoon, 0);
  ASSERT_EQ(first.kind, Kind::kAdmitted);
  Account& here = fleet.accounts[0];
  here.settle(first.hold, 700, kNoon + 1);  // an answer longer than was guessed
  ASSERT_TRUE(here.is_over(fleet.terms, kNoon + 1));
  here.granted(fleet.record.take(here.want(fleet.terms, -1, kNoon + 1), fleet.terms.limits, 2), kNoon + 1);
  EXPECT_FALSE(here.is_over(fleet.terms, kNoon + 1));
  EXPECT_EQ(fleet.begin(1, 301, kNoon + 1, 0).kind, Kind::kRefused) << "700 of 1000 are used";
  const auto second = fleet.begin(1, 300, kNoon + 200, 0);
  ASSERT_EQ(second.kind, Kind::kAdmitted);
  fleet.accounts[1].settle(second.hold, 1, kNoon + 200);
  EXPECT_EQ(fleet.begin(0, 100, kNoon + 200, 0).kind, Kind::kRefused)
      << "the other one holds all that is left";
  fleet.record.give_back(fleet.accounts[1].give_back(fleet.terms, kNoon + 200));
  EXPECT_EQ(fleet.begin(0, 100, kNoon + 400, 0).kind, Kind::kAdmitted);
}

TEST(LeasedAccounts, AGatewayThatHasServedNothingShowsWhatIsLeftOfTheRecord) {
  Fleet fleet(2, {.tokens_per_min = 1000}, 1);
  const auto all = fleet.begin(0, 995, kNoon, 0);
  ASSERT_EQ(all.kind, Kind::kAdmitted);
  ASSERT_EQ(fleet.begin(1, 50, kNoon, 0).kind, Kind::kRefused);
  const int64_t left = 1000 - fleet.record.granted[1];
  EXPECT_LE(left, 5);
  EXPECT_EQ(fleet.accounts[1].tokens_view(fleet.terms, kNoon).remaining, left);
  EXPECT_EQ(fleet.accounts[1].tokens_view(fleet.terms, kNoon + 60'000).remaining, 1000) << "a new window";
}

TEST(LeasedAccounts, AStoreThatIsAwayLeavesEachItsPart) {
  Account account;
  const AccountTerms terms = terms_of({.requests_per_min = 10}, true, 2);
  ASSERT_EQ(account.begin(terms, 1, kNoon).kind, Kind::kAsk);
  account.store_is_away(kNoon + 5000);
  int admitted = 0;
  while (account.begin(terms, 1, kNoon).kind == Kind::kAdmitted) ++admitted;
  EXPECT_EQ(admitted, 5);
  EXPECT_EQ(account.begin(terms, 1, kNoon + 5000).kind, Kind::kAsk) << "and then it is asked again";
}

TEST(AccountBook, ForgetsTheLeastRecentlyUsedThatHasNothingRunning) {
  AccountBook book(2);
  const AccountTerms terms = terms_of({.requests_per_min = 1});
  const Hash128 a{0, 1}, b{0, 2}, c{0, 3};
  const auto running = book.use(a).begin(terms, 1, kNoon);
  const auto ended = book.use(b).begin(terms, 1, kNoon);
  book.use(b).settle(ended.hold, 1, kNoon);
  book.use(c);
  EXPECT_EQ(book.find(b), nullptr);
  ASSERT_NE(book.find(a), nullptr);
  EXPECT_EQ(book.use(a).begin(terms, 1, kNoon).kind, Kind::kRefused);
  EXPECT_EQ(book.use(b).begin(terms, 1, kNoon).kind, Kind::kAdmitted) << "it begins anew";
  book.find(a)->settle(running.hold, 1, kNoon);
  EXPECT_LE(book.size(), 2u);
  EXPECT_EQ(book.forgotten(), 2u);
}

}  // namespace
}  // namespace troupe::route
