#include "worker/input/history_cuts.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace troupe::history_cuts_test {

// Turns of a user's message and an answer.
std::vector<HistoryMessage> turns(size_t count, int64_t tokens_each = 10) {
  std::vector<HistoryMessage> history;
  for (size_t i = 0; i < 2 * count; ++i) history.push_back({tokens_each, i % 2 == 0, false});
  return history;
}

TEST(HistoryCuts, LeavesAHistoryAloneThatFits) {
  const HistoryCuts cuts(turns(4), 30);
  EXPECT_EQ(cuts.first_kept(80), 0u);
  EXPECT_NE(cuts.first_kept(79), 0u);
}

TEST(HistoryCuts, IsBetweenTurnsAndAStepBehindTheOneBefore) {
  const HistoryCuts cuts(turns(10), 30);
  EXPECT_EQ(cuts.next(0), 4u);  // 30 tokens end within a turn
  EXPECT_EQ(cuts.next(4), 8u);
  EXPECT_EQ(cuts.first_kept(199), 4u);
  EXPECT_EQ(cuts.first_kept(160), 4u);
  EXPECT_EQ(cuts.first_kept(159), 8u);
}

TEST(HistoryCuts, LeavesTheLastCutWhereNothingFits) {
  const HistoryCuts cuts(turns(5), 20);
  EXPECT_EQ(cuts.first_kept(1), 8u);
  EXPECT_EQ(cuts.next(8), std::nullopt);
}

TEST(HistoryCuts, ALongLastTurnStaysAlone) {
  auto history = turns(4);
  history.push_back({70, true, false});
  const HistoryCuts cuts(history, 60);
  EXPECT_EQ(cuts.first_kept(100), 6u);
  EXPECT_EQ(cuts.first_kept(80), 8u);
}

TEST(HistoryCuts, WithoutATurnToBeginWithNothingIsLeftOut) {
  const std::vector<HistoryMessage> answers(6, HistoryMessage{10, false, false});
  EXPECT_EQ(HistoryCuts(answers, 10).first_kept(5), 0u);
}

TEST(HistoryCuts, PassingMessagesTakeRoomInQuartersOfAStepAndMoveNoCut) {
  auto history = turns(4);
  history.insert(history.begin() + 6, {9, false, true});
  const HistoryCuts cuts(history, 40);  // a quarter: 10
  EXPECT_EQ(cuts.first_kept(90), 0u);
  EXPECT_EQ(cuts.first_kept(89), 4u);
  EXPECT_EQ(cuts.next(0), HistoryCuts(turns(4), 40).next(0));
}

// Between two cuts of a conversation that grows a step of tokens came, whatever its messages' lengths.
TEST(HistoryCuts, OneThatGrowsKeepsItsCut) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const auto room = static_cast<int64_t>(200 + random() % 400);
    const auto step = static_cast<int64_t>(20 + random() % 150);
    std::vector<HistoryMessage> history;
    size_t kept = 0;
    int64_t at_cut = 0, total = 0;
    for (int turn = 0; turn < 200; ++turn) {
      for (const bool user : {true, false}) {
        const auto tokens = static_cast<int64_t>(1 + random() % 40);
        history.push_back({tokens, user, false});
        total += tokens;
      }
      const HistoryCuts cuts(history, step);
      const size_t first = cuts.first_kept(room);
      ASSERT_GE(first, kept) << seed;
      int64_t left = 0;
      for (size_t i = first; i < history.size(); ++i) left += history[i].tokens;
      ASSERT_LE(left, room) << seed;
      if (first == kept) continue;
      ASSERT_EQ(HistoryCuts(history, step).next(kept).has_value(), true);
      if (kept > 0) {
        ASSERT_GE(total - at_cut, step - 80) << seed;  // but for the turns on both sides
      }
      kept = first;
      at_cut = total;
    }
    ASSERT_GT(kept, 0u) << seed;
  }
}

}  // namespace troupe::history_cuts_test
