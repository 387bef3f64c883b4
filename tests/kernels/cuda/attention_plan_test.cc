// The work lists of attention: every row meets every key it may see, once.

#include "kernels/cuda/attention/attention_plan.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/attention/step_array_bytes.h"

namespace troupe::cuda {
namespace {

struct Step {
  std::vector<int32_t> starts{0};
  std::vector<int32_t> contexts;
  void add(int32_t keys, int32_t queries) {
    starts.push_back(starts.back() + queries);
    contexts.push_back(keys);
  }
  AttentionPlan plan(int32_t group_heads, int32_t piece_keys = kPieceKeys, int32_t tiles_at_once = 0) const {
    AttentionPlan plan;
    plan_attention({.query_starts = starts,
                    .context_counts = contexts,
                    .group_heads = group_heads,
                    .piece_keys = piece_keys,
                    .tiles_at_once = tiles_at_once},
                   plan);
    return plan;
  }
  AttentionLimits limits(int32_t group_heads, int32_t tiles_at_once = 0) const {
    return {starts.back(), static_cast<int64_t>(contexts.size()),
            contexts.empty() ? 0 : *std::max_element(contexts.begin(), contexts.end()), group_heads,
            tiles_at_once};
  }
};

// The merged sums are the written ones, each once.
void expect_sums_are_merged(const AttentionPlan& plan) {
  std::map<int32_t, int32_t> written, merged;
  for (const auto* items : {&plan.tiles, &plan.pieces}) {
    for (const AttentionItem& item : *items) {
      for (int32_t i = 0; item.partial >= 0 && i < item.end_row - item.first_row; ++i) {
        ++written[item.partial + i];
      }
    }
  }
  for (const AttentionItem& item : plan.shared) {
    for (int32_t at = item.first_row; at < item.end_row; ++at) {
      const SharedRow& row = plan.shared_rows[static_cast<size_t>(at)];
      ++written[row.partial + item.partial * row.request_rows];
    }
  }
  for (const MergeItem& merge : plan.merges) {
    EXPECT_LE(merge.end_row - merge.first_row, kMergeRows);
    for (int32_t row = 0; row < merge.end_row - merge.first_row; ++row) {
      for (int32_t i = 0; i < merge.count; ++i) ++merged[merge.first_partial + i * merge.piece_rows + row];
    }
  }
  EXPECT_EQ(written, merged);
  for (const auto& [partial, count] : merged) ASSERT_EQ(count, 1) << partial;
  EXPECT_EQ(static_cast<int32_t>(merged.size()), plan.partial_count);
}

// The memory reserved for steps like this one is enough.
void expect_within_limits(AttentionPlan plan, const AttentionLimits& limits, int32_t piece_keys) {
  round_up(plan);
  EXPECT_LE(plan.partial_count, most_partials(limits, piece_keys));
  const auto bytes_of = [](const auto& array) {
    return static_cast<int64_t>(array.size() * sizeof(array[0]));
  };
  const std::map<StepArray, int64_t> needed{{StepArray::kAttentionTiles, bytes_of(plan.tiles)},
                                            {StepArray::kAttentionShared, bytes_of(plan.shared)},
                                            {StepArray::kAttentionSharedRows, bytes_of(plan.shared_rows)},
                                            {StepArray::kAttentionPieces, bytes_of(plan.pieces)},
                                            {StepArray::kAttentionMerges, bytes_of(plan.merges)}};
  for (const auto& [which, bytes] : step_array_bytes(limits, piece_keys, 16)) {
    const auto found = needed.find(which);
    EXPECT_LE(found == needed.end() ? 0 : found->second, bytes) << static_cast<int>(which);
  }
}

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

// A launch's grid comes of them.
TEST(AttentionPlan, StepsOfAFewMoreKeysHaveAsManyItems) {
  std::map<std::pair<size_t, size_t>, int> sizes;
  Step step;
  for (int r = 0; r < 64; ++r) step.add(200 + 37 * r, 1);
  constexpr int kSteps = 256;
  for (int i = 0; i < kSteps; ++i) {
    const AttentionPlan exact = step.plan(4);
    AttentionPlan plan = exact;
    round_up(plan);
    ++sizes[{plan.pieces.size(), plan.merges.size()}];
    ASSERT_LE(8 * (plan.pieces.size() - exact.pieces.size()), exact.pieces.size());
    for (size_t n = exact.pieces.size(); n < plan.pieces.size(); ++n)
      ASSERT_EQ(plan.pieces[n].end_row, plan.pieces[n].first_row) << "nothing to do";
    for (size_t n = exact.merges.size(); n < plan.merges.size(); ++n)
      ASSERT_EQ(plan.merges[n].end_row, plan.merges[n].first_row);
    for (int32_t& keys : step.contexts) ++keys;
  }
  EXPECT_LE(sizes.size(), 5u) << "of " << kSteps << " steps, with a piece more in every fourth";
}

TEST(AttentionPlan, ARoundedCountIsAFewMoreOrAnEighth) {
  for (const size_t step : {kPiecesStep, kMergesStep}) {
    EXPECT_EQ(rounded_count(0, step), 0u);
    for (size_t count = 1; count < 5000; ++count) {
      const size_t rounded = rounded_count(count, step);
      ASSERT_GE(rounded, count);
      ASSERT_LT(rounded - count, std::max(std::min(step, count), count / 8 + 1)) << count;
      ASSERT_LE(rounded, rounded_count(count + 1, step));
      ASSERT_EQ(rounded_count(rounded, step), rounded);
    }
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

TEST(AttentionPlan, TilesBehindACachedPrefixAreCutUntilTheDeviceIsFull) {
  Step step;
  step.add(2112, 64);
  EXPECT_EQ(step.plan(1).tiles.size(), 1u);
  const AttentionPlan plan = step.plan(1, kPieceKeys, 4);
  ASSERT_EQ(plan.tiles.size(), 4u);
  EXPECT_EQ(plan.tiles[0].end_key, 640) << "a quarter is 528, in whole steps";
  EXPECT_EQ(plan.tiles[3].first_key, 1920);
  EXPECT_EQ(plan.tiles[3].partial, 3 * 64);
  EXPECT_EQ(plan.merges.size(), 16u);
  EXPECT_EQ(step.plan(1, kPieceKeys, 100).tiles.size(), 9u) << "pieces of 256 are the shortest";
  // Two tiles of each, and room for two more pieces: the longest decides.
  step.add(128, 128);
  const AttentionPlan both = step.plan(1, kPieceKeys, 5);
  ASSERT_EQ(both.tiles.size(), 5u);
  EXPECT_EQ(both.tiles[0].end_key, 768);
  EXPECT_EQ(both.tiles[3].partial, -1) << "short tiles stay whole";
}

TEST(AttentionPlan, TilesStayWholeWhereCuttingGainsLittle) {
  Step step;
  step.add(kTilePieceKeys + kTileGainKeys - 1, 60);
  EXPECT_EQ(step.plan(1, kPieceKeys, 100).tiles.size(), 1u);
  step.add(3000, 130);
  EXPECT_GT(step.plan(1, kPieceKeys, 100).tiles.size(), 4u);
  EXPECT_EQ(step.plan(1, kPieceKeys, 4).tiles.size(), 4u) << "the device is full of them";
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
      step.add(queries + up_to(1500) - 1 + (queries == 0 ? 1 : 0), queries);
    }
    const int32_t piece_keys = random() % 2 == 0 ? kPieceKeys : 2 * kPieceKeys;
    const int32_t tiles_at_once = random() % 2 == 0 ? 0 : up_to(80);
    const AttentionPlan plan = step.plan(group, piece_keys, tiles_at_once);
    expect_within_limits(plan, step.limits(group, tiles_at_once), piece_keys);
    expect_sums_are_merged(plan);
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
  }
}

// A step of decoding requests with tables given as (persona, blocks of it, keys): a persona's blocks have its
// number's hundreds, behind `common` blocks that all share; the blocks after them are a request's own.
struct Behind {
  int32_t persona, blocks, keys;
};
struct Sharing {
  Step step;
  std::vector<int32_t> tables;
  int32_t stride = 64;

  Sharing(std::vector<Behind> requests, int32_t common) {
    int32_t own = 100000;
    for (const Behind& r : requests) {
      step.add(r.keys, 1);
      for (int32_t b = 0; b < stride; ++b) {
        tables.push_back(b < common ? b : b < common + r.blocks ? 1000 * (r.persona + 1) + b : own++);
      }
    }
  }
  AttentionPlan plan(int32_t group_heads, int32_t piece_keys = kPieceKeys,
                     const CascadeGate& gate = CascadeGate::guessed()) const {
    AttentionPlan plan;
    plan_attention({step.starts, step.contexts, group_heads, tables, stride, 16, piece_keys, gate}, plan);
    return plan;
  }
};

TEST(AttentionPlan, PiecesAreLongerWhereTheirSumsTakeTooMuch) {
  const AttentionLimits limits{512, 64, 8192, 4};
  EXPECT_EQ(piece_keys_for(limits, most_partials(limits, kPieceKeys)), kPieceKeys);
  EXPECT_EQ(piece_keys_for(limits, most_partials(limits, kPieceKeys) - 1), 2 * kPieceKeys);
  EXPECT_EQ(piece_keys_for(limits, most_partials(limits, 8 * kPieceKeys)), 8 * kPieceKeys);
  EXPECT_GE(piece_keys_for(limits, 0), limits.keys);
}

TEST(Cascade, APersonasRequestsReadItOnce) {
  const Sharing sharing({{0, 40, 900}, {1, 40, 800}, {0, 40, 700}, {0, 40, 641}, {0, 40, 1000}}, 0);
  const AttentionPlan plan = sharing.plan(4);
  ASSERT_EQ(plan.shared_rows.size(), 16u) << "four requests of four heads; the other persona has one";
  ASSERT_EQ(plan.shared.size(), 2u) << "640 keys in pieces of 512";
  EXPECT_EQ(plan.shared[1].first_key, 512);
  EXPECT_EQ(plan.shared[1].end_key, 640);
  EXPECT_EQ(plan.shared[1].end_row, 16);
  for (const AttentionItem& piece : plan.pieces) {
    EXPECT_TRUE(piece.request == 1 || piece.first_key >= 640) << piece.request;
  }
}

TEST(Cascade, PersonasBehindOneTemplateAreEachTheirOwn) {
  std::vector<Behind> requests;
  for (int32_t i = 0; i < 12; ++i) requests.push_back({i % 2, 30, 1000});
  const AttentionPlan plan = Sharing(requests, 20).plan(1);
  ASSERT_EQ(plan.shared.size(), 4u);
  for (const AttentionItem& item : plan.shared) EXPECT_EQ(item.end_row - item.first_row, 6);
  EXPECT_EQ(plan.shared[1].end_key, 800);
}

TEST(Cascade, TooFewRequestsOrKeysAreNone) {
  EXPECT_TRUE(Sharing({{0, 40, 900}, {0, 40, 900}, {0, 40, 900}}, 0).plan(4).shared.empty());
  EXPECT_TRUE(Sharing({{0, 15, 900}, {0, 15, 900}, {0, 15, 900}, {0, 15, 900}}, 0).plan(4).shared.empty());
  EXPECT_FALSE(Sharing({{0, 16, 900}, {0, 16, 900}, {0, 16, 900}, {0, 16, 900}}, 0).plan(4).shared.empty());
}

TEST(Cascade, TheGateDecidesWhichRequestsAreServed) {
  const Sharing two({{0, 4, 900}, {0, 4, 900}, {1, 9, 900}}, 0);
  EXPECT_TRUE(two.plan(4).shared.empty());
  const AttentionPlan plan = two.plan(4, kPieceKeys, CascadeGate::always());
  ASSERT_EQ(plan.shared.size(), 1u);
  EXPECT_EQ(plan.shared[0].end_key, 64);
  EXPECT_EQ(plan.shared_rows.size(), 8u) << "nobody shares anything with the third";
  CascadeGate gate = CascadeGate::always();
  gate.keys_min(0) = 65;
  EXPECT_TRUE(two.plan(4, kPieceKeys, gate).shared.empty());
}

TEST(Cascade, ARequestAtTheEndOfWhatIsSharedKeepsItsOwnKey) {
  // All 640 keys in shared blocks, the last of them the query's own: a block less is shared.
  const AttentionPlan plan = Sharing({{0, 40, 640}, {0, 40, 900}, {0, 40, 900}, {0, 40, 900}}, 0).plan(2);
  ASSERT_FALSE(plan.shared.empty());
  EXPECT_EQ(plan.shared.back().end_key, 624);
}

TEST(Cascade, EveryRowStillMeetsEachOfItsKeysOnce) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    std::vector<Behind> requests;
    for (uint32_t r = random() % 40; r > 0; --r) {
      requests.push_back({static_cast<int32_t>(random() % 3), static_cast<int32_t>(random() % 30) + 10,
                          static_cast<int32_t>(random() % 900) + 1});
    }
    const Sharing sharing(requests, static_cast<int32_t>(random() % 20));
    const int32_t group = 1 << (random() % 5);
    const int32_t piece_keys = random() % 2 == 0 ? kPieceKeys : 2 * kPieceKeys;
    const AttentionPlan plan =
        sharing.plan(group, piece_keys, random() % 2 == 0 ? CascadeGate::guessed() : CascadeGate::always());
    expect_within_limits(plan, sharing.step.limits(group), piece_keys);
    // Keys of each partial: of each row, where a request has but one piece.
    std::map<std::pair<int32_t, int32_t>, int32_t> keys;  // (request, row) → how many
    for (const AttentionItem& item : plan.shared) {
      for (int32_t at = item.first_row; at < item.end_row; ++at) {
        const SharedRow& row = plan.shared_rows[static_cast<size_t>(at)];
        ASSERT_GT(row.position, item.end_key - 1) << "nothing shared is masked";
        ASSERT_EQ(
            sharing.tables[static_cast<size_t>(row.token * sharing.stride + (item.end_key - 1) / 16)],
            sharing.tables[static_cast<size_t>(item.request * sharing.stride + (item.end_key - 1) / 16)]);
        keys[{row.token, row.head}] += item.end_key - item.first_key;  // a query a request: token is request
      }
    }
    for (const AttentionItem& item : plan.pieces) {
      for (int32_t row = item.first_row; row < item.end_row; ++row) {
        keys[{item.request, row}] += item.end_key - item.first_key;
      }
    }
    for (size_t r = 0; r < requests.size(); ++r) {
      for (int32_t row = 0; row < group; ++row) {
        ASSERT_EQ((keys[{static_cast<int32_t>(r), row}]), requests[r].keys) << "round " << round;
      }
    }
    expect_sums_are_merged(plan);
  }
}

TEST(AttentionPlan, TokensKnowTheirRequest) {
  std::vector<int32_t> requests{9, 9};
  token_requests(std::vector<int32_t>{0, 2, 2, 5}, requests);
  EXPECT_THAT(requests, testing::ElementsAre(0, 0, 2, 2, 2));
}

}  // namespace
}  // namespace troupe::cuda
