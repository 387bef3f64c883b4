// DRY against a matcher that compares every place with the end, token by token.

#include "kernels/dry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace troupe::dry_test {

using Ids = std::vector<int32_t>;
using Breakers = std::vector<Ids>;

std::shared_ptr<const DryBreakers> breakers_of(const Breakers& sequences) {
  return std::make_shared<const DryBreakers>(sequences);
}

// Longer ones have its penalty.
int length_max_of(const DryParams& params) {
  const bool grows = params.base > 1.000001f;
  return params.allowed_length + (grows ? static_cast<int>(88.7228391 / std::log(double{params.base})) : 0);
}

// O(n²): how many of the last tokens come behind the last whole breaker, by trying each place; then for each
// earlier end of a passage how far back it goes with the text.
std::map<int32_t, int> lengths_by_comparing(const DryParams& params, const Breakers& breakers, Ids history) {
  if (params.range > 0 && history.size() > static_cast<size_t>(params.range))
    history.erase(history.begin(), history.end() - params.range);
  const auto count = static_cast<int>(history.size());
  int longest_allowed = count;
  for (int begin = count - 1; begin >= 0 && longest_allowed == count; --begin) {
    for (const Ids& breaker : breakers) {
      const auto size = static_cast<int>(breaker.size());
      if (begin + size > count || !std::equal(breaker.begin(), breaker.end(), history.begin() + begin))
        continue;
      longest_allowed = std::min(longest_allowed, count - begin - size);
    }
  }
  std::map<int32_t, int> lengths;
  for (int end = 1; end < count; ++end) {  // a passage [.., end), followed by history[end]
    int length = 0;
    while (length < end && length < longest_allowed &&
           history[static_cast<size_t>(end - 1 - length)] == history[static_cast<size_t>(count - 1 - length)])
      ++length;
    const int32_t next = history[static_cast<size_t>(end)];
    if (length < params.allowed_length) continue;
    if (std::find(breakers.begin(), breakers.end(), Ids{next}) != breakers.end()) continue;
    lengths[next] = std::max(lengths[next], std::min(length, length_max_of(params)));
  }
  return lengths;
}

void expect_same(const DryParams& params, const Breakers& breakers, const Ids& history) {
  DryMatcher matcher;
  std::map<int32_t, int> found;
  for (const DryPenalty& penalty : matcher.find(params, history)) {
    EXPECT_TRUE(found.emplace(penalty.token, penalty.length).second) << "twice";
    const double amount = params.multiplier * std::pow(params.base, penalty.length - params.allowed_length);
    if (amount < 1e30) {
      EXPECT_NEAR(penalty.amount, amount, 1e-5 * amount);
    }
    EXPECT_TRUE(std::isfinite(penalty.amount));
  }
  EXPECT_EQ(found, lengths_by_comparing(params, breakers, history));
}

TEST(Dry, IsWhatComparingEveryPlaceSays) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const int32_t alphabet = 1 + static_cast<int32_t>(random() % 6);
    Ids history(random() % 80);
    for (int32_t& id : history) id = static_cast<int32_t>(random() % static_cast<uint32_t>(alphabet));
    Breakers breakers;
    for (auto i = random() % 3; i > 0; --i) {
      Ids& breaker = breakers.emplace_back(1 + random() % 3);
      for (int32_t& id : breaker) id = static_cast<int32_t>(random() % 6);
    }
    DryParams params{.multiplier = 0.8f,
                     .base = 1.75f,
                     .allowed_length = 1 + static_cast<int32_t>(random() % 4),
                     .range = static_cast<int32_t>(random() % 3 == 0 ? random() % 60 : 0),
                     .breakers = breakers_of(breakers)};
    expect_same(params, breakers, history);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Dry, APenaltyGrowsWithTheRepeat) {
  // 1 2 3 4 9 1 2 3: a 4 would make it four tokens that come again.
  const Ids history{1, 2, 3, 4, 9, 1, 2, 3};
  DryMatcher matcher;
  const auto found = matcher.find({.multiplier = 0.5f, .base = 2.0f, .allowed_length = 2}, history);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].token, 4);
  EXPECT_EQ(found[0].length, 3);
  EXPECT_FLOAT_EQ(found[0].amount, 1.0f);
}

TEST(Dry, BreakersEndARepeatAndLoseNothing) {
  const Ids history{1, 2, 3, 4, 9, 1, 2, 3};
  const auto count = [&](const Breakers& breakers) {
    DryMatcher matcher;
    return matcher.find({.multiplier = 1, .breakers = breakers_of(breakers)}, history).size();
  };
  EXPECT_EQ(count({}), 1u);
  EXPECT_EQ(count({{1}}), 1u);     // 2 3 come again
  EXPECT_EQ(count({{2}}), 0u);     // 3 alone
  EXPECT_EQ(count({{4}}), 0u);     // itself
  EXPECT_EQ(count({{9, 1}}), 1u);  // 2 3
  EXPECT_EQ(count({{1, 2}}), 0u);
  EXPECT_EQ(count({{3, 4}}), 1u);  // not yet one
}

TEST(Dry, AHugeRepeatStaysFinite) {
  const Ids history(3000, 5);
  DryMatcher matcher;
  const auto found = matcher.find({.multiplier = 100, .base = 4.0f}, history);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].length, 2 + 63) << "4^64 is no float";
  EXPECT_TRUE(std::isfinite(found[0].amount));
  EXPECT_GT(found[0].amount, 1e38f);
}

TEST(Dry, ALongRepetitiveHistoryTakesLinearTime) {
  // By comparing, 2^36 steps.
  Ids history(size_t{1} << 18, 5);
  DryMatcher matcher;
  EXPECT_EQ(matcher.find({.multiplier = 1}, history).size(), 1u);
  for (size_t i = 0; i < history.size(); i += 2) history[i] = 6;
  EXPECT_EQ(matcher.find({.multiplier = 1}, history).size(), 1u);
}

}  // namespace troupe::dry_test
