// Tokens that follow a draw without one: how they are computed, beside what, and where an answer ends in
// them.

#include <gtest/gtest.h>

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace run_test {

using namespace testing;

class SchedulerRun : public ::testing::Test {
 protected:
  void use(const SchedulerConfig& config) { scheduler_ = std::make_unique<Scheduler>(config); }
  // Few blocks, none of which is kept free for answers.
  static SchedulerConfig tight() {
    SchedulerConfig config = config_of(8);
    config.output_reserve = OutputReserve::kNone;
    return config;
  }
  void add(RequestId id, int prompt_count, int32_t max_new_count, bool answers = true) {
    NewRequest request;
    request.id = id;
    request.prompt = tokens_from(static_cast<TokenId>(100 * id), prompt_count);
    request.max_new_count = max_new_count;
    ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
    if (answers) step(id, 1);
  }
  // A step, in which `id` draws a token that brings `run_count` more if it draws one; counts by request.
  std::map<RequestId, int> step(RequestId id, int run_count) {
    const Batch& batch = scheduler_->plan(TimePoint{});
    std::map<RequestId, int> counts;
    const std::vector<TokenId> run = tokens_from(50, run_count);
    std::vector<StepToken> tokens;
    for (const BatchItem& item : batch.items) {
      counts[item.id] = item.count;
      EXPECT_GE(static_cast<int32_t>(item.blocks.size()) * 4, item.start + item.count);
      if (!item.samples) continue;
      positions_[item.id] = item.sample_position;
      tokens.push_back({.id = item.id, .token = 9});
      if (item.id == id) tokens.back().run = run;
    }
    if (!batch.empty()) scheduler_->commit(tokens, TimePoint{}, finished_);
    EXPECT_TRUE(scheduler_->verify().ok()) << scheduler_->verify();
    return counts;
  }
  using Counts = std::map<RequestId, int>;

  std::unique_ptr<Scheduler> scheduler_ = std::make_unique<Scheduler>(config_of(40));
  std::vector<RequestId> finished_;
  std::map<RequestId, int32_t> positions_;
};

TEST_F(SchedulerRun, IsComputedInOneStepBehindWhichTheNextIsDrawn) {
  add(1, 6, 40);
  EXPECT_EQ(step(1, 11), (Counts{{1, 2}})) << "the run of one that came with the first token";
  EXPECT_EQ(positions_[1], 2);
  EXPECT_EQ(scheduler_->tokens_left(1), 40 - 2 - 1 - 11);
  EXPECT_EQ(scheduler_->stats().pending_prefill_tokens, 12);
  EXPECT_EQ(step(1, 0), (Counts{{1, 12}}));
  EXPECT_EQ(positions_[1], 14);
  EXPECT_EQ(scheduler_->stats().pending_prefill_tokens, 0);
  EXPECT_EQ(step(1, 0), (Counts{{1, 1}}));
}

TEST_F(SchedulerRun, EveryOtherDecodeHasItsTokenAndPrefillsWhatIsLeft) {
  SchedulerConfig config = config_of(60);
  config.max_num_batched_tokens = 10;
  use(config);
  add(1, 6, 40);
  add(2, 6, 40);
  step(1, 19);
  add(3, 30, 9, /*answers=*/false);
  EXPECT_EQ(step(0, 0), (Counts{{1, 9}, {2, 1}}));
  EXPECT_EQ(step(0, 0), (Counts{{1, 9}, {2, 1}}));
  EXPECT_EQ(step(0, 0), (Counts{{1, 2}, {2, 1}, {3, 7}}));
  EXPECT_EQ(positions_[1], 23);
}

TEST_F(SchedulerRun, AnswerEndsWithTheLastTokenThatItMayHave) {
  add(1, 6, 5);
  step(1, 2);
  EXPECT_EQ(finished_, std::vector<RequestId>{1});
  EXPECT_TRUE(step(1, 0).empty());
  EXPECT_EQ(scheduler_->stats().blocks_used, 0);
  EXPECT_EQ(scheduler_->tokens_left(1), 0);
}

TEST_F(SchedulerRun, TakesTheBlocksOfYoungerRequests) {
  use(tight());
  add(1, 6, 20);
  add(2, 6, 9);
  step(1, 15);
  EXPECT_EQ(step(0, 0), (Counts{{1, 16}}));
  EXPECT_EQ(scheduler_->stats().preemptions_total, 1);
}

TEST_F(SchedulerRun, OfARequestThatGivesWayIsComputedAgain) {
  use(tight());
  add(1, 6, 9);
  add(2, 6, 20);
  EXPECT_EQ(step(2, 15), (Counts{{1, 1}, {2, 2}}));
  EXPECT_EQ(step(0, 0), (Counts{{1, 1}})) << "there is no room for the run";
  while (finished_.empty()) step(0, 0);
  const Counts again = step(0, 0);
  EXPECT_EQ(again.size(), 1u);
  EXPECT_GE(again.at(2), 16);
  EXPECT_EQ(positions_[2], 18);
}

}  // namespace run_test
}  // namespace troupe
