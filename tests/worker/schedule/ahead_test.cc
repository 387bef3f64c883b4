// Steps that are planned before the tokens of the step before are known.

#include <gtest/gtest.h>

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace ahead_test {

using namespace testing;

class SchedulerAhead : public ::testing::Test {
 protected:
  Status add(RequestId id, std::vector<TokenId> prompt, int32_t max_new_count) {
    NewRequest request;
    request.id = id;
    request.prompt = std::move(prompt);
    request.max_new_count = max_new_count;
    return scheduler_.add(std::move(request));
  }
  // The last id of each item of the next step.
  std::vector<TokenId> plan() {
    std::vector<TokenId> ids;
    for (const BatchItem& item : scheduler_.plan(TimePoint{}).items) ids.push_back(item.ids.back());
    return ids;
  }
  std::vector<RequestId> resolve(const std::vector<StepToken>& tokens) {
    std::vector<RequestId> finished;
    scheduler_.resolve(tokens, TimePoint{}, finished);
    return finished;
  }

  Scheduler scheduler_{config_of(20)};
};

// With separate steps a prompt's step lies between a token and the step that continues from it, so the token
// is resolved by then.
TEST(SchedulerAheadSeparate, BatchHoldsResolvedTokenAfterPromptStep) {
  SchedulerConfig config = config_of(20);
  config.batching = Batching::kSeparate;
  Scheduler scheduler(config);
  const auto add = [&](RequestId id) {
    NewRequest request;
    request.id = id;
    request.prompt = tokens_from(static_cast<TokenId>(id) * 10, 4);
    request.max_new_count = 4;
    ASSERT_TRUE(scheduler.add(std::move(request)).ok());
  };
  std::vector<RequestId> finished;
  add(1);
  ASSERT_EQ(scheduler.plan(TimePoint{}).items.size(), 1u);
  scheduler.advance();
  add(2);
  ASSERT_EQ(scheduler.plan(TimePoint{}).items.front().id, 2u);
  scheduler.resolve(std::vector<StepToken>{{1, 70, false}}, TimePoint{}, finished);
  scheduler.advance();
  const Batch& batch = scheduler.plan(TimePoint{});
  ASSERT_EQ(batch.items.size(), 2u);
  EXPECT_EQ(batch.items[0].ids.back(), 70);
  EXPECT_EQ(batch.items[1].ids.back(), -1);
  scheduler.resolve(std::vector<StepToken>{{2, 80, false}}, TimePoint{}, finished);
  scheduler.advance();
  EXPECT_TRUE(finished.empty());
  EXPECT_TRUE(scheduler.verify().ok()) << scheduler.verify();
}

TEST_F(SchedulerAhead, NextBatchHoldsPlaceholderForUnresolvedToken) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 4).ok());
  ASSERT_TRUE(add(2, tokens_from(10, 5), 4).ok());
  EXPECT_EQ(plan(), (std::vector<TokenId>{3, 14}));
  scheduler_.advance();
  EXPECT_EQ(plan(), (std::vector<TokenId>{-1, -2}));
  EXPECT_TRUE(resolve({{1, 70, false}, {2, 80, false}}).empty());
  scheduler_.advance();
  // The next step computes the tokens behind the resolved ones.
  const Batch& batch = scheduler_.plan(TimePoint{});
  ASSERT_EQ(batch.items.size(), 2u);
  EXPECT_EQ(batch.items[1].start, 6);
  EXPECT_EQ(batch.items[1].ids.back(), -2);
  EXPECT_EQ(batch.items[1].sample_position, 2);
}

TEST_F(SchedulerAhead, StepInFlightIsIgnoredAfterStopToken) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 9).ok());
  ASSERT_TRUE(add(2, tokens_from(10, 5), 9).ok());
  plan();
  scheduler_.advance();
  EXPECT_EQ(plan().size(), 2u);
  EXPECT_EQ(resolve({{1, 0, true}, {2, 80, false}}), (std::vector<RequestId>{1}));
  EXPECT_EQ(scheduler_.stats().running, 2) << "it is in the step in flight";
  scheduler_.advance();
  EXPECT_EQ(scheduler_.stats().running, 1);
  EXPECT_EQ(plan(), (std::vector<TokenId>{-2}));
  EXPECT_TRUE(resolve({{1, 99, false}, {2, 81, false}}).empty()) << "a token of one that has ended";
  scheduler_.abandon();
  scheduler_.remove(2);
  EXPECT_TRUE(plan().empty());
  EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
}

TEST_F(SchedulerAhead, RequestWithAllItsTokensIsNotPlannedAgain) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 1).ok());
  plan();
  scheduler_.advance();
  EXPECT_EQ(scheduler_.stats().running, 0);
  EXPECT_TRUE(plan().empty());
  EXPECT_EQ(resolve({{1, 5, false}}), (std::vector<RequestId>{1}));
}

TEST_F(SchedulerAhead, RemovedRequestIgnoresItsUnresolvedToken) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 4).ok());
  ASSERT_TRUE(add(2, tokens_from(10, 5), 4).ok());
  plan();
  scheduler_.advance();
  scheduler_.remove(1);
  EXPECT_EQ(plan(), (std::vector<TokenId>{-2}));
  EXPECT_TRUE(resolve({{1, 70, true}, {2, 80, false}}).empty());
  scheduler_.advance();
  EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
}

// An unresolved token completes a block: the block has no hash before the token is resolved.
TEST_F(SchedulerAhead, BlockIsHashedAfterItsTokensAreResolved) {
  const std::vector<TokenId> answer{50, 51, 52, 53, 54};
  ASSERT_TRUE(add(1, tokens_from(0, 3), 5).ok());
  plan();
  scheduler_.advance();
  for (size_t i = 0; i < answer.size(); ++i) {
    EXPECT_EQ(plan().empty(), i + 1 == answer.size());
    resolve({{1, answer[i], false}});
    if (i + 1 < answer.size()) scheduler_.advance();
  }
  EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
  ASSERT_TRUE(add(2, joined(tokens_from(0, 3), answer), 1).ok());
  plan();
  EXPECT_EQ(scheduler_.cached_count(2), 7) << "all of which the KV was computed";
}

using SchedulerAheadDeathTest = SchedulerAhead;

TEST_F(SchedulerAheadDeathTest, CallsOutOfOrderAbort) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 4).ok());
  EXPECT_DEATH(scheduler_.advance(), "was not planned");
  plan();
  EXPECT_DEATH(resolve({}), "has not ended");
  scheduler_.advance();
  plan();
  EXPECT_DEATH(scheduler_.advance(), "tokens of the one before");
  EXPECT_DEATH(scheduler_.remove(1), "in flight");
  EXPECT_DEATH(resolve({{2, 5, false}}), "in order");
}

}  // namespace ahead_test
}  // namespace troupe
