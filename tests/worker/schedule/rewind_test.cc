// Tokens that are taken back: what is computed next, which blocks go, and that nothing of it is cached.

#include <gtest/gtest.h>

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace rewind_test {

using namespace testing;

class SchedulerRewind : public ::testing::Test {
 protected:
  Status add(RequestId id, std::vector<TokenId> prompt, int32_t max_new_count, bool provisional = true) {
    NewRequest request;
    request.id = id;
    request.prompt = std::move(prompt);
    request.max_new_count = max_new_count;
    request.spec.provisional = provisional;
    return scheduler_.add(std::move(request));
  }
  BatchItem plan() {
    const Batch& batch = scheduler_.plan(TimePoint{});
    return batch.items.empty() ? BatchItem{} : batch.items.front();
  }
  std::vector<RequestId> resolve(const StepToken& token) {
    std::vector<RequestId> finished;
    scheduler_.resolve(std::vector<StepToken>{token}, TimePoint{}, finished);
    return finished;
  }
  // A step whose token is `token`; the ids of those that ended.
  std::vector<RequestId> step(const StepToken& token) {
    plan();
    std::vector<RequestId> finished;
    scheduler_.commit(std::vector<StepToken>{token}, TimePoint{}, finished);
    EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
    return finished;
  }
  static StepToken token(TokenId id, int32_t settled_count = 0, int32_t kept_count = -1) {
    return {.id = 1, .token = id, .settled_count = settled_count, .kept_count = kept_count};
  }

  Scheduler scheduler_{config_of(20)};
};

TEST_F(SchedulerRewind, AnswerGoesOnBehindWhatIsKept) {
  ASSERT_TRUE(add(1, tokens_from(0, 6), 9).ok());
  for (TokenId id = 50; id < 54; ++id) step(token(id));
  EXPECT_EQ(scheduler_.stats().blocks_free, 17);
  step(token(54, 0, 1));
  const BatchItem item = plan();
  EXPECT_EQ(item.start, 6);
  EXPECT_EQ(std::vector<TokenId>(item.ids.begin(), item.ids.end()), std::vector<TokenId>{50});
  EXPECT_EQ(item.sample_position, 1);
  EXPECT_TRUE(item.samples);
  EXPECT_EQ(item.blocks.size(), 2u) << "a block that nothing is left of is given back";
}

TEST_F(SchedulerRewind, StepInFlightIsIgnored) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 9).ok());
  plan();
  scheduler_.advance();
  plan();
  resolve(token(50));
  scheduler_.advance();
  EXPECT_EQ(plan().start, 5);
  EXPECT_TRUE(resolve(token(51, 0, 1)).empty());
  scheduler_.advance();
  const BatchItem item = plan();
  EXPECT_EQ(item.start, 4);
  EXPECT_EQ(item.ids.back(), 50);
  EXPECT_TRUE(resolve(token(99, 0, 0)).empty()) << "a token of a step that counts for nothing";
  scheduler_.advance();
  EXPECT_EQ(plan().ids.back(), -1);
  EXPECT_TRUE(resolve(token(61)).empty());
  scheduler_.abandon();
  EXPECT_EQ(plan().ids.back(), 61);
  EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
}

TEST_F(SchedulerRewind, StepInFlightThatFailsIsIgnored) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 9).ok());
  step(token(50));
  plan();
  scheduler_.advance();
  plan();
  resolve(token(51, 0, 0));
  scheduler_.abandon();
  const BatchItem item = plan();
  EXPECT_EQ(item.sample_position, 0);
  EXPECT_EQ(item.ids.back(), 3);
}

// It may have to be computed again, and what is cached is never written to.
TEST_F(SchedulerRewind, LastBlockOfThePromptStaysTheRequestsOwn) {
  ASSERT_TRUE(add(1, tokens_from(0, 8), 9).ok());
  const BlockId last = plan().blocks[1];
  scheduler_.advance();
  EXPECT_EQ(scheduler_.stats().blocks_cached + scheduler_.stats().blocks_used, 2);
  plan();
  resolve(token(50, 0, 0));
  scheduler_.advance();
  EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
  EXPECT_EQ(scheduler_.stats().running, 1);
  const BatchItem item = plan();
  EXPECT_EQ(item.start, 7);
  EXPECT_EQ(item.blocks[1], last);
  scheduler_.abandon();
  scheduler_.remove(1);
  ASSERT_TRUE(add(2, tokens_from(0, 9), 1).ok());
  plan();
  EXPECT_EQ(scheduler_.cached_count(2), 7) << "what is cached when it ends is all but that id";
}

TEST_F(SchedulerRewind, OnlySettledTokensAreCached) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 20).ok());
  for (TokenId id = 50; id < 61; ++id) step(token(id, std::min(id - 49, 5)));
  scheduler_.remove(1);
  EXPECT_EQ(scheduler_.stats().blocks_cached, 2) << "of the prompt and five tokens all but the last";
  ASSERT_TRUE(add(2, joined(tokens_from(0, 4), tokens_from(50, 12)), 1, /*provisional=*/false).ok());
  plan();
  EXPECT_EQ(scheduler_.cached_count(2), 8);
}

TEST_F(SchedulerRewind, AllTokensAreThereOnlyOnceTheyAreKnown) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 2).ok());
  step(token(50));
  plan();
  scheduler_.advance();
  EXPECT_EQ(scheduler_.stats().running, 1);
  EXPECT_EQ(plan().id, 0u) << "there is no place for another token";
  EXPECT_TRUE(resolve(token(51, 1, 1)).empty());
  EXPECT_EQ(plan().sample_position, 1);
  scheduler_.advance();
  plan();
  EXPECT_EQ(resolve(token(52, 2)), (std::vector<RequestId>{1}));
  EXPECT_EQ(scheduler_.stats().running, 0);
}

TEST_F(SchedulerRewind, StopTokenCanBeTakenBack) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 9).ok());
  StepToken stop = token(0, 0, 0);
  stop.finished = true;
  EXPECT_TRUE(step(stop).empty());
  EXPECT_EQ(plan().sample_position, 0);
}

TEST_F(SchedulerRewind, WaitingRequestIsCutToo) {
  SchedulerConfig config = config_of(6);
  config.output_reserve = OutputReserve::kNone;
  Scheduler scheduler(config);
  const auto add_to = [&](RequestId id) {
    NewRequest request;
    request.id = id;
    request.prompt = tokens_from(static_cast<TokenId>(id) * 10, 7);
    request.max_new_count = 8;
    request.spec.provisional = id == 2;
    ASSERT_TRUE(scheduler.add(std::move(request)).ok());
  };
  std::vector<RequestId> finished;
  add_to(1);
  add_to(2);
  const std::vector<StepToken> tokens{{.id = 1, .token = 70}, {.id = 2, .token = 80}};
  for (int i = 0; i < 5; ++i) {
    scheduler.plan(TimePoint{});
    scheduler.commit(tokens, TimePoint{}, finished);
  }
  ASSERT_EQ(scheduler.plan(TimePoint{}).items.size(), 2u);
  scheduler.advance();
  // The older takes the block of the younger, whose last token is not known yet.
  ASSERT_EQ(scheduler.plan(TimePoint{}).preempted, (std::vector<RequestId>{2}));
  scheduler.resolve(std::vector<StepToken>{{.id = 1, .token = 71}, {.id = 2, .token = 81, .kept_count = 0}},
                    TimePoint{}, finished);
  scheduler.advance();
  EXPECT_TRUE(scheduler.verify().ok()) << scheduler.verify();
  EXPECT_EQ(scheduler.stats().waiting, 1);
  scheduler.resolve(std::vector<StepToken>{{.id = 1, .token = 72}}, TimePoint{}, finished);
  scheduler.remove(1);
  const Batch& batch = scheduler.plan(TimePoint{});
  ASSERT_EQ(batch.items.size(), 1u);
  EXPECT_EQ(batch.items[0].ids.back(), 26);
  EXPECT_EQ(batch.items[0].sample_position, 0);
}

using SchedulerRewindDeathTest = SchedulerRewind;

TEST_F(SchedulerRewindDeathTest, SettledTokensCannotBeTakenBack) {
  ASSERT_TRUE(add(1, tokens_from(0, 4), 9).ok());
  step(token(50));
  step(token(51, 2));
  plan();
  scheduler_.advance();
  EXPECT_DEATH(resolve(token(52, 2, 1)), "not settled");
  EXPECT_DEATH(resolve(token(52, 4)), "more tokens are settled");
}

}  // namespace rewind_test
}  // namespace troupe
