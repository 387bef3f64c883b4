#include "worker/kv/ghost_list.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace troupe {
namespace evicted_blocks_test {

Hash128 name(uint64_t n) {
  return hash_bytes({reinterpret_cast<const char*>(&n), sizeof n});
}

// The hashes of a prompt.
std::vector<Hash128> prompt_of(uint64_t first, size_t count) {
  std::vector<Hash128> out;
  for (size_t i = 0; i < count; ++i) out.push_back(name(first + i));
  return out;
}

void add(GhostList& evicted, const std::vector<Hash128>& prompt, size_t begin, size_t end,
         const GhostEntry& first) {
  evicted.add({.index = begin,
               .hashes = std::span(prompt).subspan(begin, end - begin),
               .group_hash = prompt[begin / GhostList::kGroup * GhostList::kGroup]},
              first);
}

// Takes a prompt's blocks [begin, end): the entry of each, which is forgotten then.
std::vector<std::optional<GhostEntry>> taken(GhostList& evicted, const std::vector<Hash128>& prompt,
                                             size_t begin, size_t end, uint64_t now) {
  std::vector<std::optional<GhostEntry>> out;
  while (begin < end) {
    const auto found = evicted.take(prompt, begin, end, now);
    EXPECT_GT(found.count, 0u);
    for (size_t i = 0; i < found.count; ++i) {
      out.push_back(found.block);
      if (found.block) out.back()->idle_since -= i;
    }
    begin += found.count;
  }
  EXPECT_EQ(begin, end);
  return out;
}

TEST(GhostList, ReturnsEntryOnceAndRounded) {
  GhostList evicted(6400);
  const uint64_t now = 5'000'000'000;
  const auto one = prompt_of(1, 1), two = prompt_of(2, 1);
  add(evicted, one, 0, 1,
      {.idle_since = now - 12'345, .user = 77, .interval = 4321, .use_count = 5, .shared = true});
  add(evicted, two, 0, 1, {.idle_since = now - 800'000, .user = 78, .use_count = 200, .returning = true});
  EXPECT_FALSE(taken(evicted, prompt_of(3, 1), 0, 1, now)[0]);
  const auto first = taken(evicted, one, 0, 1, now + 500)[0];
  ASSERT_TRUE(first);
  EXPECT_EQ(first->idle_since, now - 12'345);
  EXPECT_TRUE(GhostList::is_same_user(*first, 77));
  EXPECT_FALSE(GhostList::is_same_user(*first, 78));
  EXPECT_LE(std::abs(std::log2(first->interval / 4321)), 0.126F) << "to a quarter of an octave";
  EXPECT_EQ(first->use_count, 5u);
  EXPECT_TRUE(first->shared);
  EXPECT_FALSE(first->returning);
  EXPECT_FALSE(taken(evicted, one, 0, 1, now)[0]) << "it was forgotten when it was found";
  const auto second = taken(evicted, two, 0, 1, now)[0];
  ASSERT_TRUE(second);
  EXPECT_EQ(second->idle_since, now - 800'000);
  EXPECT_EQ(second->interval, 0);
  EXPECT_EQ(second->use_count, 8u) << "more are the same";
  EXPECT_TRUE(second->returning);
}

TEST(GhostList, FindsRowAddedAndTakenInAnyPieces) {
  const auto prompt = prompt_of(1, 40);
  const uint64_t now = 1000;
  for (const size_t step : {1u, 3u, 30u}) {    // it goes from its end, so many at a time
    for (const size_t back : {1u, 5u, 30u}) {  // and comes back from its begin
      GhostList evicted(1000);
      for (size_t end = 35; end > 5;) {
        const size_t begin = end - std::min(step, end - 5);
        add(evicted, prompt, begin, end, {.idle_since = 900 - begin, .user = 7});
        end = begin;
      }
      size_t entries = 0;
      for (size_t i = 0; i < evicted.size(); ++i) entries += evicted.at(i, now).count > 0;
      EXPECT_EQ(entries, 5u) << "5 to 7, 8 to 15, 16 to 23, 24 to 31, 32 to 34";
      for (size_t begin = 0; begin < 40;) {
        const size_t end = std::min(begin + back, size_t{40});
        const auto blocks = taken(evicted, prompt, begin, end, now);
        for (size_t i = begin; i < end; ++i) {
          ASSERT_EQ(blocks[i - begin].has_value(), i >= 5 && i < 35) << i;
          if (blocks[i - begin]) {
            EXPECT_EQ(blocks[i - begin]->idle_since, 900 - i);
          }
        }
        begin = end;
      }
    }
  }
}

TEST(GhostList, FindsCommonBeginningOfPartingPrompt) {
  GhostList evicted(1000);
  const auto prompt = prompt_of(1, 24);
  add(evicted, prompt, 0, 24, {.idle_since = 100});
  auto other = prompt;
  for (size_t i = 18; i < 24; ++i) other[i] = name(1000 + i);
  const auto blocks = taken(evicted, other, 0, 24, 200);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(blocks[i].has_value(), i < 18) << i;
  const auto rest = taken(evicted, prompt, 18, 24, 200);
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(rest[i].has_value()) << "what nobody asked for is still known";
}

TEST(GhostList, ForgetsLongestIdleEntryAcrossTimeWrap) {
  GhostList evicted(1);  // one set of five
  const uint64_t wrap = uint64_t{1} << 32;
  for (uint64_t i = 0; i < 12; ++i) add(evicted, prompt_of(i, 1), 0, 1, {.idle_since = wrap - 12 + 2 * i});
  for (uint64_t i = 0; i < 12; ++i) {
    const auto found = taken(evicted, prompt_of(i, 1), 0, 1, wrap + 20)[0];
    EXPECT_EQ(found.has_value(), i >= 7) << i;
    EXPECT_EQ(found.value_or(GhostEntry{.idle_since = wrap - 12 + 2 * i}).idle_since, wrap - 12 + 2 * i);
  }
}

TEST(GhostList, RemembersManyTurnoversWithFewFalseMatches) {
  constexpr uint64_t kBlocks = 4096;
  GhostList evicted(kBlocks);
  uint64_t now = 0;
  for (uint64_t i = 0; i < 32 * kBlocks; i += 20) {
    add(evicted, prompt_of(i, 20), 0, 20, {.idle_since = now + 20});
    now += 20;
  }
  size_t known = 0, strangers = 0;
  for (size_t i = 0; i < evicted.size(); ++i) known += evicted.at(i, now).count;
  EXPECT_GT(known, 8 * kBlocks);
  for (uint64_t i = 0; i < 100'000; i += 20) {
    for (const auto& block : taken(evicted, prompt_of(10'000'000 + i, 20), 0, 20, now))
      strangers += block.has_value();
  }
  EXPECT_LT(strangers, 30u);
}

}  // namespace evicted_blocks_test
}  // namespace troupe
