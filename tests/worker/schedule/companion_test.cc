// A request with a companion: which requests may have one, and how the two are computed side by side.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace companion_test {

using namespace testing;
using ::testing::HasSubstr;

class SchedulerCompanion : public ::testing::Test {
 protected:
  explicit SchedulerCompanion(const SchedulerConfig& config = config_of(20)) : scheduler_(config) {}

  static NewRequest pair(RequestId id, int prompt_count, int companion_count, int32_t max_new_count) {
    NewRequest request;
    request.id = id;
    request.prompt = tokens_from(1000 * static_cast<TokenId>(id), prompt_count);
    request.companion = tokens_from(1000 * static_cast<TokenId>(id) + 500, companion_count);
    request.max_new_count = max_new_count;
    return request;
  }

  struct Item {
    RequestId id;
    bool is_companion;
    int32_t start, count;
    bool samples;
    bool operator==(const Item&) const = default;
  };
  // A step; what was in it.
  std::vector<Item> step() {
    std::vector<Item> items;
    std::vector<StepToken> tokens;
    for (const BatchItem& item : scheduler_.plan(TimePoint{}).items) {
      items.push_back({item.id, item.is_companion, item.start, item.count, item.samples});
      if (item.samples) tokens.push_back({.id = item.id, .token = item.is_companion ? -7 : 77});
      if (item.sample_position == 0) continue;
      EXPECT_EQ(item.ids.back(), 77);
    }
    if (items.empty()) return items;
    scheduler_.commit(tokens, TimePoint{}, finished_);
    EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
    return items;
  }

  Scheduler scheduler_;
  std::vector<RequestId> finished_;
};

// The simulator's ids have the highest bit.
TEST_F(SchedulerCompanion, ACallersIdsAreItsOwn) {
  constexpr RequestId kHigh = RequestId{1} << 63 | 1;
  NewRequest alone = pair(1, 5, 0, 2);
  alone.id = kHigh;
  ASSERT_TRUE(scheduler_.add(std::move(alone)).ok());
  EXPECT_EQ(step(), (std::vector<Item>{{kHigh, false, 0, 5, true}}));
}

TEST_F(SchedulerCompanion, BothAreReadyBeforeATokenIsDrawn) {
  ASSERT_TRUE(scheduler_.add(pair(1, 5, 70, 2)).ok());
  EXPECT_EQ(scheduler_.stats().waiting, 2) << "it takes the places of two";
  EXPECT_EQ(step(), (std::vector<Item>{{1, false, 0, 4, false}, {1, true, 0, 60, false}}));
  EXPECT_EQ(step(), (std::vector<Item>{{1, true, 60, 9, false}}));
  EXPECT_EQ(step(), (std::vector<Item>{{1, false, 4, 1, true}, {1, true, 69, 1, true}}));
  EXPECT_EQ(step(), (std::vector<Item>{{1, false, 5, 1, true}, {1, true, 70, 1, true}}));
  EXPECT_EQ(finished_, std::vector<RequestId>{1});
  EXPECT_EQ(scheduler_.stats().running + scheduler_.stats().blocks_used, 0);
}

TEST_F(SchedulerCompanion, OneTokenNeedsNoStepOfItsOwn) {
  ASSERT_TRUE(scheduler_.add(pair(1, 1, 1, 2)).ok());
  EXPECT_EQ(step(), (std::vector<Item>{{1, false, 0, 1, true}, {1, true, 0, 1, true}}));
}

TEST_F(SchedulerCompanion, ItsPromptIsFoundInTheCache) {
  ASSERT_TRUE(scheduler_.add(pair(1, 9, 13, 1)).ok());
  while (!step().empty()) continue;
  NewRequest again = pair(2, 5, 0, 1);
  again.companion = tokens_from(1500, 13);
  ASSERT_TRUE(scheduler_.add(std::move(again)).ok());
  EXPECT_EQ(step(), (std::vector<Item>{{2, false, 0, 4, false}}));
  EXPECT_EQ(step(), (std::vector<Item>{{2, false, 4, 1, true}, {2, true, 12, 1, true}}));
}

TEST_F(SchedulerCompanion, RemovingTheRequestFreesBoth) {
  ASSERT_TRUE(scheduler_.add(pair(1, 9, 13, 9)).ok());
  step();
  scheduler_.remove(1);
  EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
  EXPECT_EQ(scheduler_.stats().running + scheduler_.stats().waiting, 0);
  EXPECT_EQ(scheduler_.stats().blocks_used, 0);
}

TEST_F(SchedulerCompanion, KvOfBothMustFit) {
  // 20 blocks of 4: ten for each, of whose 40 tokens the last is never stored.
  EXPECT_TRUE(scheduler_.add(pair(1, 20, 20, 21)).ok());
  const Status refused = scheduler_.add(pair(2, 20, 20, 22));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.ToString(), HasSubstr("the negative one 20; with 22 to generate"));
  SchedulerConfig config = config_of(20);
  EXPECT_EQ(most_new_beside_companion(config, 20, 20, 20), 21);
  EXPECT_EQ(most_new_beside_companion(config, 20, 21, 20), 20);
  EXPECT_LT(most_new_beside_companion(config, 20, 60, 24), 1);
  config.max_num_seqs = 1;
  EXPECT_THAT(check_possible(config, 5, 1, 5).ToString(), HasSubstr("takes two sequences"));
  EXPECT_THAT(check_possible(config_of(200), 5, 1, 256).ToString(),
              HasSubstr("the negative prompt has 256 tokens"));
}

// Two pairs whose companions begin alike, as those of a request for two answers.
TEST_F(SchedulerCompanion, ACompanionWaitsForWhatAnotherComputes) {
  NewRequest one = pair(1, 9, 13, 1), two = pair(2, 9, 0, 1);
  two.companion = one.companion;
  ASSERT_TRUE(scheduler_.add(std::move(one)).ok());
  ASSERT_TRUE(scheduler_.add(std::move(two)).ok());
  EXPECT_EQ(step().size(), 2u) << "of the first alone";
  EXPECT_EQ(step(),
            (std::vector<Item>{{1, false, 8, 1, true}, {1, true, 12, 1, true}, {2, false, 0, 8, false}}));
}

// They cannot wait for each other.
TEST_F(SchedulerCompanion, BothMayBeginAlike) {
  NewRequest one = pair(1, 13, 0, 1);
  one.companion = joined(tokens_from(1000, 9), tokens_from(5000, 3));
  ASSERT_TRUE(scheduler_.add(std::move(one)).ok());
  EXPECT_EQ(step(), (std::vector<Item>{{1, false, 0, 12, false}, {1, true, 0, 11, false}}));
  EXPECT_EQ(step().size(), 2u);
  EXPECT_EQ(finished_, std::vector<RequestId>{1});
}

}  // namespace companion_test
}  // namespace troupe
