// The scheduler's contract, one behaviour a test: steps, chunks, limits. Shared and cached prefixes are in
// scheduler_cache_test.cc, memory pressure in scheduler_memory_test.cc, random operations in
// scheduler_model_test.cc.

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace scheduler_test {

using namespace testing;

TEST(Scheduler, RunsOneRequestToItsEnd) {
  Driver driver(config_of(16));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 10), 3).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 10}}));
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 1}}));
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 1}}));
  EXPECT_EQ(driver.finished, (std::vector<RequestId>{1}));
  EXPECT_EQ(driver.sampled[1], (std::vector<TokenId>{1'000'000, 1'000'001, 1'000'002}));
  driver.run_until_idle();
}

TEST(Scheduler, StopTokenEndsRequestEarly) {
  Driver driver(config_of(16));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 5), 50).ok());
  driver.scheduler.plan(TimePoint{});
  std::vector<RequestId> finished;
  driver.scheduler.commit(std::vector<StepToken>{{1, 9, true}}, TimePoint{}, finished);
  EXPECT_EQ(finished, (std::vector<RequestId>{1}));
  driver.run_until_idle();
}

TEST(Scheduler, MaxModelLenEndsRequest) {
  SchedulerConfig config = config_of(16);
  config.max_model_len = 12;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 10), 100).ok());
  driver.run_until_idle();
  EXPECT_EQ(driver.sampled[1].size(), 2u);
}

TEST(Scheduler, RefusesRequestsThatCanNeverRun) {
  SchedulerConfig config = config_of(4);  // 16 tokens of KV
  config.max_model_len = 100;
  config.max_waiting = 2;
  Driver driver(config);
  EXPECT_EQ(driver.add(1, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(driver.add(1, tokens_from(0, 4), 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(driver.add(1, tokens_from(0, 100), 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(driver.add(1, tokens_from(0, 13), 5).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(driver.add(1, tokens_from(0, 13), 4).ok());  // 16 tokens of KV: the last is never fed back
  EXPECT_EQ(driver.add(1, tokens_from(0, 4)).code(), absl::StatusCode::kInvalidArgument);  // known id
  EXPECT_TRUE(driver.add(2, tokens_from(0, 4)).ok());
  EXPECT_EQ(driver.add(3, tokens_from(0, 4)).code(), absl::StatusCode::kResourceExhausted);
  driver.run_until_idle();
  EXPECT_EQ(driver.finished.size(), 2u);
}

TEST(Scheduler, ChunksLongPromptBesideDecodes) {
  SchedulerConfig config = config_of(64);
  config.max_num_batched_tokens = 16;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 8), 20).ok());
  driver.step();
  ASSERT_TRUE(driver.add(2, tokens_from(100, 40), 2).ok());
  const Batch& batch = driver.scheduler.plan(TimePoint{});
  ASSERT_EQ(batch.items.size(), 2u);
  EXPECT_EQ(batch.items[0].id, 1u);  // decodes first
  EXPECT_EQ(batch.decode_count, 1);
  EXPECT_EQ(batch.items[1].ids.size(), 15u);
  EXPECT_FALSE(batch.items[1].samples);
  EXPECT_EQ(batch.token_count, 16);
  std::vector<RequestId> finished;
  driver.scheduler.commit(std::vector<StepToken>{{1, 5, false}}, TimePoint{}, finished);
  EXPECT_EQ(driver.scheduler.stats().pending_prefill_tokens, 25);
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 1}, {2, 15}}));
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 1}, {2, 10}}));
  driver.run_until_idle();
}

TEST(Scheduler, SeveralPrefillsShareAStep) {
  Driver driver(config_of(64));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 10)).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 20)).ok());
  ASSERT_TRUE(driver.add(3, tokens_from(200, 40)).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 10}, {2, 20}, {3, 34}}));
  driver.run_until_idle();
}

TEST(Scheduler, AbandonedStepIsComputedAgain) {
  Driver driver(config_of(64));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 20), 2).ok());
  driver.scheduler.plan(TimePoint{});
  driver.scheduler.abandon();
  EXPECT_TRUE(driver.scheduler.verify().ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 20}}));
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.stats().computed_tokens_total, 21);
}

// As with a preempted request the emitted ids are computed with the prompt, found cached like it, and count
// as part of the answer.
TEST(Scheduler, ResumedAnswerContinuesAtItsPosition) {
  Driver driver(config_of(64));
  NewRequest request;
  request.id = 1;
  request.prompt = tokens_from(0, 20);
  request.emitted_count = 6;
  request.max_new_count = 9;
  ASSERT_TRUE(driver.scheduler.add(request).ok());
  EXPECT_EQ(driver.scheduler.stats().pending_prefill_tokens, 20);
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 20}}));
  driver.run_until_idle();
  EXPECT_EQ(driver.sampled[1], (std::vector<TokenId>{1'000'006, 1'000'007, 1'000'008}));

  request.id = 2;
  ASSERT_TRUE(driver.scheduler.add(request).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{2, 1}}));
  EXPECT_EQ(driver.scheduler.cached_count(2), 19);
  driver.run_until_idle();

  request.id = 3;
  request.max_new_count = 6;
  EXPECT_EQ(driver.scheduler.add(request).code(), absl::StatusCode::kInvalidArgument);
  request.emitted_count = 20;
  request.max_new_count = 30;
  EXPECT_EQ(driver.scheduler.add(request).code(), absl::StatusCode::kInvalidArgument)
      << "of the prompt nothing is left";
}

TEST(Scheduler, DecodesDoNotStarvePrefills) {
  SchedulerConfig config = config_of(200);
  config.max_num_batched_tokens = 4;
  config.max_num_seqs = 64;
  Driver driver(config);
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(driver.add(static_cast<RequestId>(i), tokens_from(100 * i, 6), 30).ok());
  }
  driver.run_until_idle();
  EXPECT_EQ(driver.finished.size(), 12u);
}

TEST(Scheduler, RemoveIsIdempotentAndWorksInEveryPhase) {
  Driver driver(config_of(20));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 40), 10).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 60), 2).ok());
  driver.step();
  driver.scheduler.remove(2);  // waiting
  driver.scheduler.remove(1);  // decoding
  driver.scheduler.remove(1);
  driver.scheduler.remove(77);
  EXPECT_TRUE(driver.scheduler.verify().ok());
  driver.run_until_idle();
}

TEST(SchedulerDeathTest, TokensMustMatchTheBatch) {
  Driver driver(config_of(20));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4)).ok());
  driver.scheduler.plan(TimePoint{});
  std::vector<RequestId> finished;
  EXPECT_DEATH(driver.scheduler.commit(std::vector<StepToken>{{2, 0, false}}, TimePoint{}, finished),
               "one token for each item");
  EXPECT_DEATH(driver.scheduler.commit({}, TimePoint{}, finished), "one token for each item");
  EXPECT_DEATH(driver.scheduler.plan(TimePoint{}), "before the last step");
}

}  // namespace scheduler_test
}  // namespace troupe
