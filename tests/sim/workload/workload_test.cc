// Synthetic persona traffic has the configured shape.

#include "sim/workload/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/fleet/oracle_caches.h"

namespace troupe::sim {
namespace {

std::vector<TraceRequest> make_all(const PersonaWorkload& workload, uint64_t seed) {
  auto source = PersonaSource::make(workload, seed);
  EXPECT_TRUE(source.ok()) << source.status();
  std::vector<TraceRequest> all;
  TraceRequest request;
  while (*(*source)->next(request)) all.push_back(request);
  return all;
}

double rate_between(const std::vector<TraceRequest>& all, double begin_s, double end_s) {
  double count = 0;
  for (const TraceRequest& r : all) {
    const double at = static_cast<double>(r.at.count()) / 1e9;
    count += at >= begin_s && at < end_s ? 1 : 0;
  }
  return count / (end_s - begin_s);
}

TEST(PersonaWorkload, SameSeedSameRequests) {
  const PersonaWorkload w{.rate = 50, .duration_s = 60};
  const auto a = make_all(w, 7), b = make_all(w, 7), c = make_all(w, 8);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].at, b[i].at);
    EXPECT_EQ(a[i].blocks, b[i].blocks);
  }
  EXPECT_NE(a.front().at, c.front().at);
}

TEST(PersonaWorkload, HasTheConfiguredRateLengthsAndPopularity) {
  const auto all = make_all({.personas = 200, .zipf = 1.1, .rate = 100, .duration_s = 1200}, 1);
  EXPECT_NEAR(rate_between(all, 0, 100), 100, 8) << "from the beginning";
  EXPECT_NEAR(rate_between(all, 400, 1200), 100, 6);
  const auto ramped = make_all({.ramp_s = 200, .rate = 100, .duration_s = 400}, 1);
  EXPECT_NEAR(rate_between(ramped, 0, 200), 50, 6);
  EXPECT_NEAR(rate_between(ramped, 200, 400), 100, 8);
  // Running sessions joined in the ramp are in their think time: without those on their last turn the rate
  // would be 4 % low here, for minutes.
  const auto after = make_all({.ramp_s = 150, .rate = 450, .duration_s = 320}, 1);
  EXPECT_NEAR(rate_between(after, 160, 320), 450, 9);
  double prompt = 0, output = 0;
  std::map<uint64_t, int> of_set;
  Duration last{};
  for (const TraceRequest& r : all) {
    EXPECT_GE(r.at, last);
    last = r.at;
    prompt += r.input_tokens;
    output += r.output_tokens;
    of_set[r.set] += 1;
    EXPECT_EQ(r.blocks.size(), static_cast<size_t>((r.input_tokens + 15) / 16));
    EXPECT_EQ(r.output_blocks.size(),
              static_cast<size_t>((r.input_tokens + r.output_tokens) / 16 - r.input_tokens / 16));
  }
  const auto n = static_cast<double>(all.size());
  EXPECT_NEAR(output / n, 120, 4);
  EXPECT_GT(prompt / n, 1700);
  EXPECT_LT(prompt / n, 2500) << "card 1,000 + about seven turns of 160 on average";
  int top = 0;
  for (const auto& [set, count] : of_set) top = std::max(top, count);
  EXPECT_NEAR(top / n, 0.2206, 0.03) << "1 / sum of r^-1.1 over 200 ranks";
}

TEST(PersonaWorkload, NextTurnBeginsWithTheLastPromptAndItsAnswer) {
  const auto all = make_all({.rate = 20, .duration_s = 200, .context_tokens = 100'000}, 3);
  std::map<uint64_t, TraceRequest> before;
  int continued = 0;
  for (const TraceRequest& r : all) {
    const auto last = before.find(r.session);
    if (last != before.end()) {
      const TraceRequest& p = last->second;
      EXPECT_EQ(r.turn, p.turn + 1);
      std::vector<uint64_t> known(p.blocks.begin(), p.blocks.begin() + p.input_tokens / 16);
      known.insert(known.end(), p.output_blocks.begin(), p.output_blocks.end());
      ASSERT_LE(known.size(), r.blocks.size());
      EXPECT_TRUE(std::equal(known.begin(), known.end(), r.blocks.begin()));
      ++continued;
    }
    before[r.session] = r;
  }
  EXPECT_GT(continued, 1000);
}

TEST(PersonaWorkload, PersonasShareTheirCardAndAllShareTheSystemLine) {
  const auto all = make_all({.personas = 5, .rate = 20, .duration_s = 100}, 3);
  std::map<uint64_t, const TraceRequest*> first;
  for (const TraceRequest& r : all) {
    EXPECT_TRUE(std::equal(r.blocks.begin(), r.blocks.begin() + 4, all[0].blocks.begin()))
        << "64 system tokens: 4 blocks";
    const auto [found, inserted] = first.try_emplace(r.set, &r);
    if (!inserted && found->second->session != r.session) {
      EXPECT_EQ(r.blocks[7], found->second->blocks[7]);
      EXPECT_NE(r.blocks.back(), found->second->blocks.back());
    }
  }
  EXPECT_EQ(first.size(), 5u);
  EXPECT_NE(first.begin()->second->blocks[5], std::next(first.begin())->second->blocks[5]);
}

TEST(PersonaWorkload, SwipeAsksForTheSamePromptAgain) {
  const auto all = make_all({.rate = 20, .duration_s = 300, .swipe = 0.3}, 3);
  std::map<uint64_t, TraceRequest> before;
  int same = 0, turns = 0;
  for (const TraceRequest& r : all) {
    const auto last = before.find(r.session);
    if (last != before.end() && last->second.turn == r.turn) {
      EXPECT_EQ(r.blocks, last->second.blocks);
      EXPECT_NE(r.output_blocks, last->second.output_blocks);
      ++same;
    }
    ++turns;
    before[r.session] = r;
  }
  EXPECT_NEAR(static_cast<double>(same) / turns, 0.3, 0.03);
}

TEST(PersonaWorkload, TruncationKeepsTheContextAndTheCard) {
  const PersonaWorkload w{.card_tokens = 300,
                          .card_tokens_max = 400,
                          .turns = 40,
                          .think_s = 1,
                          .rate = 20,
                          .duration_s = 300,
                          .context_tokens = 1000};
  std::map<uint64_t, uint64_t> card;
  for (const TraceRequest& r : make_all(w, 3)) {
    EXPECT_LE(r.input_tokens + r.output_tokens, 1000 + 1);
    EXPECT_EQ(card.try_emplace(r.set, r.blocks[6]).first->second, r.blocks[6]);
  }
}

TEST(PersonaWorkload, FlashCrowdAddsItsShareOnTop) {
  const PersonaWorkload w{
      .rate = 60,
      .duration_s = 900,
      .flash = FlashCrowd{0.4, std::chrono::seconds(300), std::chrono::seconds(600), 3000}};
  const auto all = make_all(w, 5);
  const uint64_t flash = flash_set(w);
  double in_flash = 0, late = 0;
  for (const TraceRequest& r : all) {
    if (r.at < std::chrono::seconds(300)) {
      EXPECT_NE(r.set, flash);
    }
    if (r.at < std::chrono::seconds(600)) continue;
    ++late;
    in_flash += r.set == flash ? 1 : 0;
    if (r.set == flash) {
      EXPECT_GE(r.input_tokens, 3064);
    }
  }
  EXPECT_NEAR(in_flash / late, 0.4, 0.05);
  EXPECT_NEAR(rate_between(all, 600, 900), 100, 8);
}

TEST(PersonaWorkload, BurstBeginsMoreConversationsOnlyWhileItLasts) {
  PersonaWorkload w{.turns = 1, .rate = 100, .duration_s = 300};
  w.burst = Burst{3, std::chrono::seconds(100), std::chrono::seconds(100)};
  const auto all = make_all(w, 5);
  EXPECT_NEAR(rate_between(all, 0, 100), 100, 5);
  EXPECT_NEAR(rate_between(all, 100, 200), 300, 10);
  EXPECT_NEAR(rate_between(all, 200, 300), 100, 5);
}

TEST(PersonaWorkload, EditsMakeNewSetsAndDriftMovesPopularity) {
  std::set<uint64_t> sets;
  for (const TraceRequest& r :
       make_all({.personas = 1, .rate = 20, .duration_s = 100, .edits_per_s = 0.1}, 5))
    sets.insert(r.set);
  EXPECT_GT(sets.size(), 4u);
  EXPECT_LT(sets.size(), 20u);
  std::map<uint64_t, int> early, late;
  for (const TraceRequest& r : make_all(
           {.personas = 50, .zipf = 2, .turns = 1, .rate = 50, .duration_s = 200, .drift_swaps_per_s = 1},
           5)) {
    (r.at < std::chrono::seconds(5) ? early : late)[r.set] += 1;
  }
  const auto top = [](const std::map<uint64_t, int>& counts) {
    return std::max_element(counts.begin(), counts.end(),
                            [](auto& a, auto& b) { return a.second < b.second; });
  };
  const double early_total = 5 * 50, late_total = 195 * 50;
  EXPECT_GT(top(early)->second / early_total, 0.4);
  EXPECT_LT(top(late)->second / late_total, 0.5);
}

TEST(PersonaWorkload, RefusesInvalidWorkloads) {
  const auto says = [](const PersonaWorkload& w, const char* words) {
    EXPECT_THAT(std::string(check_workload(w).message()), ::testing::HasSubstr(words));
  };
  says({.personas = 0}, "personas is 0");
  says({.rate = 0}, "rate is 0");
  says({.turns = 0.5}, "turns");
  says({.context_tokens = 100}, "context is 100");
  says({.swipe = 1}, "swipe");
  says({.flash = FlashCrowd{1.5, {}, std::chrono::seconds(1), 0}}, "flash share");
  says({.flash = FlashCrowd{0.5, {}, {}, 0}}, "flash must begin");
  says({.burst = Burst{0.5, {}, std::chrono::seconds(1)}}, "burst times");
  says({.burst = Burst{2, {}, {}}}, "burst must begin");
}

TEST(PooledLru, FindsPrefixesAndForgetsTheOldestTailFirst) {
  const auto request = [](std::vector<uint64_t> ids) {
    TraceRequest r;
    r.block_tokens = 16;
    r.input_tokens = static_cast<int32_t>(ids.size()) * 16 - 6;  // the last block holds 10
    r.blocks = std::move(ids);
    return r;
  };
  PooledLru cache(45);
  EXPECT_EQ(cache.serve(request({1, 2, 3})).pooled, 0);
  EXPECT_EQ(cache.tokens_held(), 42);
  EXPECT_EQ(cache.serve(request({1, 2, 4})).pooled, 32);
  EXPECT_EQ(cache.serve(request({1, 9})).pooled, 16) << "and 3, then 4, had to go";
  const PooledLru::Hits again = cache.serve(request({1, 2, 4}));
  EXPECT_EQ(again.pooled, 32);
  EXPECT_EQ(again.infinite, 42) << "what forgets nothing has 4 as well";
  EXPECT_EQ(PooledLru(-1).serve(request({1})).infinite, 0);
}

}  // namespace
}  // namespace troupe::sim
