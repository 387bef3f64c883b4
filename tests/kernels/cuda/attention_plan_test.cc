// The work lists of attention: every row meets every key it may see, once.

#include "kernels/cuda/attention_plan.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::cuda {
namespace {

struct Step {
  std::vector<int32_t> starts{0};
  std::vector<int32_t> contexts;
  void add(int32_t keys, int32_t queries) {
    starts.push_back(starts.back() + queries);
    contexts.push_back(keys);
  }
  AttentionPlan plan(int32_t group_heads) const {
    AttentionPlan plan;
    plan_attention({starts, contexts, group_heads}, plan);
    return plan;
  }
};

TEST(AttentionPlan, ADecodeIsPiecesOfOneSizeWhateverTheBatch) {
  Step step;
  step.add(600, 1);
  const AttentionPlan alone = step.plan(4);
  ASSERT_EQ(alone.pieces.size(), 3u);
  EXPECT_EQ(alone.pieces[2].first_key, 512);
  EXPECT_EQ(alone.pieces[2].end_key, 600);
  EXPECT_EQ(alone.merges.size(), 1u);
  for (int i = 0; i < 50; ++i) step.add(100 * (i + 1), 1);
  const AttentionPlan among = step.plan(4);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(among.pieces[i].first_key, alone.pieces[i].first_key);
    EXPECT_EQ(among.pieces[i].end_key, alone.pieces[i].end_key);
  }
}

TEST(AttentionPlan, OnePieceNeedsNoMerge) {
  Step step;
  step.add(kPieceKeys, 1);
  const AttentionPlan plan = step.plan(8);
  ASSERT_EQ(plan.pieces.size(), 1u);
  EXPECT_EQ(plan.pieces[0].partial, -1);
  EXPECT_TRUE(plan.merges.empty());
  EXPECT_EQ(plan.partial_count, 0);
}

TEST(AttentionPlan, LongTilesComeFirst) {
  Step step;
  step.add(40, 40);
  step.add(1000, 200);
  const AttentionPlan plan = step.plan(1);
  ASSERT_EQ(plan.tiles.size(), 5u);
  EXPECT_EQ(plan.tiles[0].end_key, 1000);
  EXPECT_EQ(plan.tiles[4].request, 0);
}

TEST(AttentionPlan, EveryRowMeetsEachOfItsKeysOnce) {
  std::mt19937 random(3);
  const auto up_to = [&](int32_t most) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(most)) + 1;
  };
  for (int round = 0; round < 300; ++round) {
    Step step;
    const int32_t group = 1 << (random() % 5);
    for (int32_t r = up_to(6); r > 0; --r) {
      const int32_t queries = random() % 4 == 0 ? 0 : up_to(random() % 2 == 0 ? 2 : 90);
      step.add(queries + up_to(700) - 1 + (queries == 0 ? 1 : 0), queries);
    }
    const AttentionPlan plan = step.plan(group);
    std::map<std::pair<int32_t, int32_t>, int32_t> seen;  // (request, row) → keys up to here, in order
    const auto cover = [&](const AttentionItem& item, int32_t rows) {
      const auto r = static_cast<size_t>(item.request);
      const int32_t row_count = (step.starts[r + 1] - step.starts[r]) * group;
      for (int32_t row = item.first_row; row < std::min(item.first_row + rows, row_count); ++row) {
        int32_t& keys = seen[{item.request, row}];
        EXPECT_EQ(item.first_key, keys) << "a gap, or keys twice";
        keys = item.end_key;
      }
    };
    for (const AttentionItem& item : plan.tiles) cover(item, kTileRows);
    for (const AttentionItem& item : plan.pieces) cover(item, kDecodeRows);
    for (size_t r = 0; r < step.contexts.size(); ++r) {
      const int32_t queries = step.starts[r + 1] - step.starts[r];
      for (int32_t row = 0; row < queries * group; ++row) {
        // Through the key at its own position at least; what a tile reads beyond is masked.
        EXPECT_GE((seen[{static_cast<int32_t>(r), row}]), step.contexts[r] - queries + row / group + 1);
        EXPECT_LE((seen[{static_cast<int32_t>(r), row}]), step.contexts[r]);
      }
    }
    int32_t partials = 0;
    for (const MergeItem& merge : plan.merges) {
      EXPECT_EQ(merge.first_partial, partials);
      partials += merge.count;
    }
    EXPECT_EQ(partials, plan.partial_count);
  }
}

TEST(AttentionPlan, TokensKnowTheirRequest) {
  std::vector<int32_t> requests{9, 9};
  token_requests(std::vector<int32_t>{0, 2, 2, 5}, requests);
  EXPECT_THAT(requests, testing::ElementsAre(0, 0, 2, 2, 2));
}

}  // namespace
}  // namespace troupe::cuda
