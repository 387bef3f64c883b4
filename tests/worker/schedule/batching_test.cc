// The contents of steps for each kind of batching.

#include <gtest/gtest.h>

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace batching_test {

using namespace testing;
using Counts = std::map<RequestId, int>;

SchedulerConfig config_with(Batching batching) {
  SchedulerConfig config = config_of(60);
  config.max_num_batched_tokens = 8;
  config.batching = batching;
  return config;
}

void add_background(Driver& driver, RequestId id, std::vector<TokenId> prompt, int32_t max_new_count) {
  NewRequest request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_new_count = max_new_count;
  request.spec.background = true;
  ASSERT_TRUE(driver.scheduler.add(std::move(request)).ok());
}

TEST(Batching, IsParsedFromItsNames) {
  EXPECT_EQ(batching_of("merged"), Batching::kMerged);
  EXPECT_EQ(batching_of("separate"), Batching::kSeparate);
  EXPECT_EQ(batching_of("static"), Batching::kStatic);
}

TEST(MergedSteps, HoldDecodesBesidePrompts) {
  Driver driver(config_with(Batching::kMerged));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4)).ok());
  EXPECT_EQ(driver.step(), (Counts{{1, 4}}));
  ASSERT_TRUE(driver.add(2, tokens_from(100, 10)).ok());
  EXPECT_EQ(driver.step(), (Counts{{1, 1}, {2, 7}}));
  EXPECT_EQ(driver.step(), (Counts{{1, 1}, {2, 3}}));
}

// Steps of other requests must not become much longer, and a new request must not wait for all of it.
TEST(MergedSteps, LimitBackgroundPrefill) {
  SchedulerConfig config = config_of(60);
  config.max_num_batched_tokens = 320;
  Driver driver(config);
  add_background(driver, 9, tokens_from(1000, 200), 1);
  EXPECT_EQ(driver.step(), (Counts{{9, 80}})) << "nobody else is there";
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4)).ok());
  EXPECT_EQ(driver.step(), (Counts{{1, 4}, {9, 10}}));
  EXPECT_EQ(driver.step(), (Counts{{1, 1}, {9, 10}}));
  EXPECT_EQ(driver.scheduler.stats().running, 2);
  EXPECT_EQ(driver.scheduler.stats().background_running, 1);
  EXPECT_EQ(driver.scheduler.stats().background_pending_tokens, 100);
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.stats().background_running, 0);
}

TEST(SeparateSteps, ComputePromptsBeforeDecodes) {
  Driver driver(config_with(Batching::kSeparate));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4)).ok());
  EXPECT_EQ(driver.step(), (Counts{{1, 4}}));
  EXPECT_EQ(driver.step(), (Counts{{1, 1}}));
  ASSERT_TRUE(driver.add(2, tokens_from(100, 10)).ok());
  EXPECT_EQ(driver.step(), (Counts{{2, 8}}));
  ASSERT_TRUE(driver.add(3, tokens_from(200, 5)).ok());
  EXPECT_EQ(driver.step(), (Counts{{2, 2}, {3, 5}}));
  EXPECT_EQ(driver.step(), (Counts{{1, 1}, {2, 1}, {3, 1}}));
  driver.run_until_idle();
}

// Otherwise a request that waits for blocks and one that holds them would wait for each other.
TEST(SeparateSteps, DecodeWhileNoRequestCanBeAdmitted) {
  SchedulerConfig config = config_with(Batching::kSeparate);
  config.max_num_seqs = 1;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4), 3).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 4), 3).ok());
  EXPECT_EQ(driver.step(), (Counts{{1, 4}}));
  EXPECT_EQ(driver.step(), (Counts{{1, 1}}));
  EXPECT_EQ(driver.step(), (Counts{{1, 1}}));
  EXPECT_EQ(driver.step(), (Counts{{2, 4}}));
  driver.run_until_idle();
}

TEST(SeparateSteps, ComputeBackgroundBesidePromptsOrWithoutDecodes) {
  Driver driver(config_with(Batching::kSeparate));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4), 3).ok());
  add_background(driver, 9, tokens_from(900, 12), 1);
  EXPECT_EQ(driver.step(), (Counts{{1, 4}, {9, 4}}));
  EXPECT_EQ(driver.step(), (Counts{{1, 1}})) << "what nobody waits for holds up no answer";
  EXPECT_EQ(driver.step(), (Counts{{1, 1}}));
  EXPECT_EQ(driver.step(), (Counts{{9, 4}}));
  driver.run_until_idle();
}

TEST(SeparateSteps, PreemptWhenBlocksRunOut) {
  SchedulerConfig config = config_of(6);
  config.batching = Batching::kSeparate;
  config.output_reserve = OutputReserve::kNone;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 8), 12).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 8), 12).ok());
  driver.run_until_idle();
  EXPECT_GT(driver.scheduler.stats().preemptions_total, 0);
  EXPECT_EQ(driver.sampled[1].size(), 12u);
  EXPECT_EQ(driver.sampled[2].size(), 12u);
}

TEST(StaticBatches, AdmitNoRequestBeforeAllHaveEnded) {
  Driver driver(config_with(Batching::kStatic));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 6), 2).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 6), 4).ok());
  EXPECT_EQ(driver.step(), (Counts{{1, 6}, {2, 2}}));
  EXPECT_EQ(driver.scheduler.stats().running, 2);
  ASSERT_TRUE(driver.add(3, tokens_from(200, 4), 2).ok());
  EXPECT_EQ(driver.step(), (Counts{{2, 4}})) << "the step has room for the newcomer, the batch has not";
  EXPECT_EQ(driver.step(), (Counts{{1, 1}, {2, 1}}));
  EXPECT_EQ(driver.step(), (Counts{{2, 1}})) << "whose place stays empty";
  EXPECT_EQ(driver.step(), (Counts{{2, 1}}));
  EXPECT_EQ(driver.finished, (std::vector<RequestId>{1, 2}));
  EXPECT_EQ(driver.step(), (Counts{{3, 4}}));
  driver.run_until_idle();
}

TEST(StaticBatches, AdmitMorePromptsThanOneStepHolds) {
  SchedulerConfig config = config_with(Batching::kStatic);
  config.max_num_seqs = 6;
  Driver driver(config);
  for (RequestId id = 1; id <= 8; ++id)
    ASSERT_TRUE(driver.add(id, tokens_from(static_cast<TokenId>(id) * 100, 12), 2).ok());
  driver.step();
  EXPECT_EQ(driver.scheduler.stats().running, 6);
  EXPECT_EQ(driver.scheduler.stats().waiting, 2);
  driver.run_until_idle();
}

// A request that waited for the other's blocks would miss the batch.
TEST(StaticBatches, ComputeSharedUncachedPrefixForEachRequest) {
  for (const Batching batching : {Batching::kMerged, Batching::kStatic}) {
    Driver driver(config_with(batching));
    ASSERT_TRUE(driver.add(1, tokens_from(0, 12), 1).ok());
    ASSERT_TRUE(driver.add(2, tokens_from(0, 12), 1).ok());
    driver.run_until_idle();
    EXPECT_EQ(driver.scheduler.stats().computed_tokens_total, batching == Batching::kStatic ? 24 : 16);
  }
}

TEST(StaticBatches, PreemptedRequestComesWithNextBatch) {
  SchedulerConfig config = config_of(6);
  config.batching = Batching::kStatic;
  config.output_reserve = OutputReserve::kNone;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 8), 12).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(100, 8), 12).ok());
  while (driver.scheduler.stats().preemptions_total == 0) ASSERT_FALSE(driver.step().empty());
  while (driver.finished.empty()) EXPECT_EQ(driver.step(), (Counts{{1, 1}}));
  driver.run_until_idle();
  EXPECT_EQ(driver.sampled[2].size(), 12u);
}

TEST(StaticBatches, BackgroundGivesWayWhenAloneInBatch) {
  Driver driver(config_with(Batching::kStatic));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 4), 2).ok());
  add_background(driver, 9, tokens_from(900, 12), 20);
  EXPECT_EQ(driver.step(), (Counts{{1, 4}, {9, 4}}));
  ASSERT_TRUE(driver.add(2, tokens_from(100, 4), 2).ok());
  EXPECT_EQ(driver.step(), (Counts{{1, 1}}));
  EXPECT_EQ(driver.step(), (Counts{{9, 4}})) << "it learns that somebody waits";
  EXPECT_EQ(driver.step(), (Counts{{2, 4}, {9, 4}})) << "who leads the next batch";
  driver.run_until_idle();
  EXPECT_EQ(driver.sampled[9].size(), 20u);
}

}  // namespace batching_test
}  // namespace troupe
