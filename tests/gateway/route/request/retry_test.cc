#include "gateway/route/request/retry.h"

#include <gtest/gtest.h>

namespace troupe::route {
namespace retry_test {

TimePoint at(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

RetryAction decide(Failure failure, AttemptState state) {
  RetryBudget budget({});
  return decide_retry(failure, state, budget, at(0));
}

AttemptState fresh() {
  AttemptState state;
  state.candidates_left = 2;
  return state;
}

TEST(Retry, FailuresBeforeTheFirstByteGoToTheNextCandidate) {
  EXPECT_EQ(decide({FailureKind::kConnect}, fresh()), RetryAction::kNextCandidate);
  EXPECT_EQ(decide({FailureKind::kTransport}, fresh()), RetryAction::kNextCandidate);
  EXPECT_EQ(decide({FailureKind::kBody}, fresh()), RetryAction::kNextCandidate);
  for (const int status : {429, 500, 502, 503, 507, 520, 599}) {
    EXPECT_EQ(decide({FailureKind::kStatus, status}, fresh()), RetryAction::kNextCandidate) << status;
  }
}

TEST(Retry, NothingIsRetriedAfterTheFirstByte) {
  for (const FailureKind kind : {FailureKind::kConnect, FailureKind::kTransport, FailureKind::kStatus,
                                 FailureKind::kBody, FailureKind::kDeadline}) {
    AttemptState state = fresh();
    state.first_byte_sent = true;
    EXPECT_EQ(decide({kind, 503}, state), RetryAction::kForward);
  }
}

TEST(Retry, AStreamThatCanBeResumedGoesOnWithinTheSameBounds) {
  AttemptState state = fresh();
  state.first_byte_sent = state.resumable = true;
  for (const FailureKind kind :
       {FailureKind::kConnect, FailureKind::kTransport, FailureKind::kBody, FailureKind::kSilent})
    EXPECT_EQ(decide({kind}, state), RetryAction::kNextCandidate);
  EXPECT_EQ(decide({FailureKind::kStatus, 503}, state), RetryAction::kNextCandidate);
  EXPECT_EQ(decide({FailureKind::kStatus, 504}, state), RetryAction::kForward);
  EXPECT_EQ(decide({FailureKind::kDeadline}, state), RetryAction::kForward);
  state.attempts = RetryOptions{}.attempts_max;
  EXPECT_EQ(decide({FailureKind::kBody}, state), RetryAction::kForward);
  state.attempts = 1;
  state.candidates_left = 0;
  EXPECT_EQ(decide({FailureKind::kBody}, state), RetryAction::kForward);
}

TEST(RetryBudget, HoldsEnoughForAllStreamsOfOneNode) {
  RetryBudget budget({});
  AttemptState state = fresh();
  state.first_byte_sent = state.resumable = true;
  budget.earn(at(0));
  // It has saved up while nothing failed.
  for (int stream = 0; stream < 512; ++stream)
    EXPECT_EQ(decide_retry({FailureKind::kBody}, state, budget, at(100)), RetryAction::kNextCandidate);
  for (int i = 0; i < 10'000; ++i) decide_retry({FailureKind::kBody}, state, budget, at(100));
  EXPECT_EQ(decide_retry({FailureKind::kBody}, state, budget, at(100)), RetryAction::kForward);
  EXPECT_EQ(decide_retry({FailureKind::kSilent}, state, budget, at(100)), RetryAction::kForward);
}

TEST(Retry, TheClientsOwnMistakesAreNotRetried) {
  for (const int status : {400, 401, 404, 408, 413, 422, 501}) {
    EXPECT_EQ(decide({FailureKind::kStatus, status}, fresh()), RetryAction::kForward) << status;
  }
}

TEST(Retry, ATimeoutAlreadyPaidForIsNotPaidForAgain) {
  EXPECT_EQ(decide({FailureKind::kStatus, 504}, fresh()), RetryAction::kForward);
}

Failure of_foreign(int status) {
  Failure failure{FailureKind::kStatus, status};
  failure.foreign = true;
  return failure;
}

TEST(Retry, WhatAForeignNodeRefusesAloneAnotherMayTake) {
  RetryOptions options;
  options.budget_max = 0;  // refusals cost nothing
  RetryBudget budget(options);
  AttemptState state = fresh();
  state.resend = false;
  for (const int status : {300, 302, 307, 308, 401, 402, 403, 404, 405, 407, 408, 410, 421, 425, 501}) {
    EXPECT_EQ(decide_retry(of_foreign(status), state, budget, at(0)), RetryAction::kNextCandidate) << status;
    EXPECT_FALSE(node_failed(of_foreign(status))) << status << ": it may be the request's fault";
  }
  for (const int status : {400, 406, 409, 411, 413, 415, 422, 451, 508})
    EXPECT_EQ(decide(of_foreign(status), fresh()), RetryAction::kForward) << status;
}

// A worker without a model, or of an older release.
TEST(Retry, APathThatOneOfOursLacksAnotherMayHave) {
  AttemptState state = fresh();
  state.resend = false;
  for (const int status : {404, 405, 501}) {
    Failure failure{FailureKind::kStatus, status};
    EXPECT_EQ(decide(failure, state), RetryAction::kForward) << status << ": every server has the path";
    failure.any_path = true;
    EXPECT_EQ(decide(failure, state), RetryAction::kNextCandidate) << status;
  }
  Failure refused{FailureKind::kStatus, 400};
  refused.any_path = true;
  EXPECT_EQ(decide(refused, state), RetryAction::kForward);
}

// Its proxy's patience is not the request's time: another may be faster, which is worth a retry's price.
TEST(Retry, AForeignNodes504IsRetriedWithinTheBudget) {
  EXPECT_EQ(decide(of_foreign(504), fresh()), RetryAction::kNextCandidate);
  EXPECT_TRUE(may_have_begun(of_foreign(504)));
  AttemptState state = fresh();
  state.resend = false;
  EXPECT_EQ(decide(of_foreign(504), state), RetryAction::kForward);
  RetryOptions options;
  options.budget_max = 0;
  RetryBudget budget(options);
  EXPECT_EQ(decide_retry(of_foreign(504), fresh(), budget, at(0)), RetryAction::kForward);
}

TEST(Retry, WhatThisGatewayLacksNoOtherNodeHas) {
  EXPECT_EQ(decide({FailureKind::kLocal}, fresh()), RetryAction::kForward);
}

TEST(Retry, CandidatesAttemptsAndTimeAreBounds) {
  AttemptState state = fresh();
  state.candidates_left = 0;
  EXPECT_EQ(decide({FailureKind::kConnect}, state), RetryAction::kForward);
  state = fresh();
  state.attempts = RetryOptions{}.attempts_max;
  EXPECT_EQ(decide({FailureKind::kConnect}, state), RetryAction::kForward);
  state = fresh();
  state.remaining = std::chrono::milliseconds(1);
  EXPECT_EQ(decide({FailureKind::kConnect}, state), RetryAction::kForward);
  EXPECT_EQ(decide({FailureKind::kDeadline}, fresh()), RetryAction::kForward);
}

TEST(RetryBudget, KeepsRetriesASmallShareOfTraffic) {
  RetryOptions options;
  options.budget_per_s = 0;
  RetryBudget budget(options);
  int retried = 0;
  for (int i = 0; i < 10'000; ++i) {  // a fleet where everything fails
    budget.earn(at(i * 0.001));
    retried += decide_retry({FailureKind::kStatus, 503}, fresh(), budget, at(i * 0.001)) ==
               RetryAction::kNextCandidate;
  }
  EXPECT_LE(retried, options.budget_start + 10'000 * options.budget_ratio + 1);
  EXPECT_EQ(budget.refused(), 10'000u - static_cast<uint64_t>(retried));
  EXPECT_GE(retried, 10'000 * options.budget_ratio - 1);
}

TEST(RetryBudget, StartsWithAFewAndSavesNoMoreThanItMay) {
  const auto spent = [](RetryBudget& budget, double seconds) {
    int count = 0;
    while (count < 10'000 && budget.spend(at(seconds))) count += 1;
    return count;
  };
  RetryOptions options;
  RetryBudget budget(options);
  EXPECT_EQ(spent(budget, 5'000), 32) << "whatever the clock says at the start";
  EXPECT_EQ(spent(budget, 6'000), 1'000);
  options.budget_max = 5;
  budget.earn(at(7'000));
  budget.change(options);
  EXPECT_EQ(spent(budget, 7'000), 5) << "what was saved when it might be more";
  EXPECT_EQ(spent(budget, 8'000), 5);
  RetryBudget small(options);
  EXPECT_EQ(spent(small, 0), 5);
}

TEST(Retry, WhatMayNotBeSentTwiceGoesElsewhereOnlyWhereNobodyHasBegun) {
  AttemptState state = fresh();
  state.resend = false;
  for (const FailureKind kind : {FailureKind::kTransport, FailureKind::kBody, FailureKind::kSilent})
    EXPECT_EQ(decide({kind}, state), RetryAction::kForward);
  for (const int status : {500, 502, 503}) {
    EXPECT_EQ(decide({FailureKind::kStatus, status}, state), RetryAction::kForward) << status;
  }
  EXPECT_EQ(decide({FailureKind::kConnect}, state), RetryAction::kNextCandidate);
  EXPECT_EQ(decide({FailureKind::kStatus, 429}, state), RetryAction::kNextCandidate);
  state.first_byte_sent = state.resumable = true;
  EXPECT_EQ(decide({FailureKind::kBody}, state), RetryAction::kNextCandidate)
      << "it goes on, nothing is twice";
}

TEST(RetryBudget, RefusedConnectionsAndFullNodesCostNothing) {
  RetryOptions options;
  options.budget_max = 0;
  RetryBudget budget(options);
  EXPECT_EQ(decide_retry({FailureKind::kTransport}, fresh(), budget, at(0)), RetryAction::kForward);
  EXPECT_EQ(decide_retry({FailureKind::kConnect}, fresh(), budget, at(0)), RetryAction::kNextCandidate);
  EXPECT_EQ(decide_retry({FailureKind::kStatus, 429}, fresh(), budget, at(0)), RetryAction::kNextCandidate);
}

TEST(RetryBudget, RefillsWithTimeSoThatLittleTrafficCanBeRetried) {
  RetryOptions options;
  options.budget_max = 1;
  options.budget_per_s = 1;
  RetryBudget budget(options);
  EXPECT_TRUE(budget.spend(at(10)));
  EXPECT_FALSE(budget.spend(at(10.5)));
  EXPECT_TRUE(budget.spend(at(11.6)));
  EXPECT_FALSE(budget.spend(at(5))) << "time ran backwards into the budget";
  EXPECT_FALSE(budget.spend(at(11.7))) << "since the last second only";
  EXPECT_TRUE(budget.spend(at(12.8))) << "and took nothing from it";
}

TEST(RetryBudget, RequestsEarnNoMoreThanMayBeSavedUp) {
  RetryOptions options;
  options.budget_max = 2;
  options.budget_per_s = 0;
  RetryBudget budget(options);
  for (int i = 0; i < 100; ++i) budget.earn(at(0));
  EXPECT_TRUE(budget.spend(at(0)));
  EXPECT_TRUE(budget.spend(at(0)));
  EXPECT_FALSE(budget.spend(at(0)));
}

TEST(RetryBudget, TimeCountsFromTheFirstRequest) {
  RetryOptions options;
  options.budget_start = 0;
  RetryBudget budget(options);
  budget.earn(at(100));
  EXPECT_FALSE(budget.spend(at(100)));
  EXPECT_TRUE(budget.spend(at(101)));
}

// A failure as all that decide by it see it.
TEST(Retry, EveryFailureIsOneOfTheNodesOrNot) {
  const auto status = [](int code) { return Failure{FailureKind::kStatus, code}; };
  Failure refuses_length = status(503);
  refuses_length.too_long = true;
  Failure refuses_key = status(401);
  refuses_key.foreign = true;
  struct Row {
    Failure failure;
    bool failed, ill, begun;  // node_failed(), affects_health(), may_have_begun()
  };
  const Row rows[] = {{{FailureKind::kConnect}, true, true, false},
                      {{FailureKind::kTransport}, true, true, true},
                      {{FailureKind::kBody}, true, true, true},
                      {{FailureKind::kSilent}, true, true, true},
                      {{FailureKind::kDeadline}, false, false, true},
                      {{FailureKind::kLocal}, false, false, false},
                      {status(500), true, true, true},
                      {status(503), true, false, true},
                      {status(429), false, false, false},
                      {status(400), false, false, true},
                      {status(401), false, false, true},
                      {status(501), false, false, true},
                      {status(504), false, false, true},
                      {refuses_length, false, false, false},
                      {refuses_key, false, false, false}};
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(row.failure.kind) << ' ' << row.failure.http_status);
    EXPECT_EQ(node_failed(row.failure), row.failed);
    EXPECT_EQ(affects_health(row.failure), row.ill);
    EXPECT_EQ(may_have_begun(row.failure), row.begun);
  }
}

TEST(Retry, StatusesThatAnotherNodeWouldAnswerTooAreNotRetried) {
  for (const int status : {499, 501, 504, 508, 600}) {
    EXPECT_EQ(decide({FailureKind::kStatus, status}, fresh()), RetryAction::kForward) << status;
  }
}

TEST(Retry, WhatOnlyThisNodeMayRefuseGoesToTheNext) {
  Failure failure{FailureKind::kStatus};
  failure.foreign = true;
  for (const int status : {401, 403, 404}) {
    failure.http_status = status;
    EXPECT_EQ(decide(failure, fresh()), RetryAction::kNextCandidate) << status;
  }
  failure.http_status = 422;
  EXPECT_EQ(decide(failure, fresh()), RetryAction::kForward) << "the client's fault";
  failure.http_status = 400;
  EXPECT_EQ(decide(failure, fresh()), RetryAction::kForward);
  failure.too_long = true;
  EXPECT_EQ(decide(failure, fresh()), RetryAction::kNextCandidate) << "another may have the room";
}

TEST(Retry, WhatTheClientMayNotRepeatIsRepeatedWhereItCannotHaveBegun) {
  AttemptState state = fresh();
  state.resend = false;
  Failure failure{FailureKind::kStatus, 401};
  failure.foreign = true;
  EXPECT_EQ(decide(failure, state), RetryAction::kNextCandidate);
  failure = {FailureKind::kStatus, 400};
  failure.too_long = true;
  EXPECT_EQ(decide(failure, state), RetryAction::kNextCandidate);
}

}  // namespace retry_test
}  // namespace troupe::route
