// Blocks that may be corrupt leave the cache: unit tests, and random operations against a plain model.

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/worker/kv/cached_prompts.h"

namespace troupe {
namespace discard_test {

using namespace testing;
using DiscardTest = Cache;

TEST_F(DiscardTest, WhatIsDiscardedIsFoundNoMore) {
  const auto one = joined(keys(1, 3), keys(100, 2));
  visit(one, 1, /*drew=*/true);
  cache.discard(one, {}, ids_of(one));
  EXPECT_EQ(cache.size(), 0) << "nobody else has anything behind it";
  EXPECT_EQ(pool.free_count(), 64);
  expect_whole();
}

TEST_F(DiscardTest, ATailIsDiscardedWithItsChain) {
  const auto chain = keys(1, 2);
  auto ids = ids_of(chain);
  ids.insert(ids.end(), {70, 71, 72});
  Holder holder(cache, pool, chain);
  holder.compute();
  ASSERT_TRUE(
      cache.insert_tail(holder.path, {.block = pool.allocate(), .ids = std::span(ids).subspan(8, 2)}));
  holder.end();
  EXPECT_EQ(cache.size(), 3);
  cache.discard(chain, {}, ids);
  EXPECT_EQ(cache.size(), 0);
  expect_whole();
}

TEST_F(DiscardTest, BlocksBehindUndrawnOnesGoToo) {
  const auto persona = keys(1, 3);
  const auto one = joined(persona, keys(100, 2)), two = joined(persona, keys(200, 2));
  visit(one);
  visit(two, 2);
  cache.discard(two, {}, ids_of(two));
  EXPECT_EQ(cache.size(), 0);
  expect_whole();
  visit(one);
  visit(two, 2);
  cache.discard(keys(1, 2), {}, ids_of(keys(1, 2)));
  EXPECT_EQ(found_of(one) + found_of(two), 0u) << "the chain ends within a run";
  EXPECT_EQ(pool.free_count(), 64);
  expect_whole();
}

TEST_F(DiscardTest, TrustedBlocksStayForOthersUntilFailuresFollowOneAnother) {
  const auto persona = keys(1, 3);
  const auto one = joined(persona, keys(100, 2)), two = joined(persona, keys(200, 2));
  const auto fail = [&] {
    visit(two, 2);
    cache.discard(two, {}, ids_of(two));
    expect_whole();
  };
  visit(one, 1, /*drew=*/true);
  for (int i = 0; i < 6; ++i) {
    fail();
    EXPECT_EQ(found_of(two), 3u) << "its own blocks are gone";
    EXPECT_EQ(found_of(one), 5u);
    if (i % 2 == 1) visit(one, 1, /*drew=*/true);
  }
  fail();
  fail();
  EXPECT_EQ(found_of(one), 5u);
  fail();
  EXPECT_EQ(found_of(one), 0u) << "every request to the persona has failed for a while";
  EXPECT_EQ(cache.size(), 0);
}

TEST_F(DiscardTest, WhatIsHeldIsFreedWithItsLastHold) {
  const auto persona = keys(1, 3);
  const auto one = joined(persona, keys(100, 2)), two = joined(persona, keys(200, 2));
  Holder first(cache, pool, one), second(cache, pool, joined(one, keys(300, 2)));
  first.compute();
  second.compute();
  visit(two, 2);
  cache.discard(two, {}, ids_of(two));
  expect_whole({&first, &second});
  EXPECT_EQ(found_of(one), 0u);
  EXPECT_EQ(cache.size(), 7) << "the idle branch is gone";
  first.end(/*drew=*/true);
  expect_whole({&second});
  EXPECT_EQ(cache.size(), 7);
  // Computed anew beside the old one.
  visit(one, 3);
  EXPECT_EQ(found_of(one), 5u);
  EXPECT_EQ(cache.size(), 12);
  second.end();
  EXPECT_EQ(cache.size(), 5);
  EXPECT_EQ(found_of(one), 5u);
  EXPECT_EQ(pool.used_count(), 0);
  expect_whole();
}

TEST_F(DiscardTest, WhatComesBehindSpoiltBlocksIsSpoilt) {
  Holder holder(cache, pool, keys(1, 3));
  holder.compute();
  cache.discard(keys(1, 2), {}, ids_of(keys(1, 2)));
  holder.hashes = keys(1, 6);
  while (holder.blocks.size() < 6) holder.blocks.push_back(pool.allocate());
  holder.compute();
  EXPECT_EQ(found_of(keys(1, 6)), 0u);
  const BlockId tail = pool.allocate();
  const std::vector<TokenId> ids{90, 91};
  EXPECT_FALSE(cache.insert_tail(holder.path, {.block = tail, .ids = ids}));
  pool.release(tail);
  expect_whole({&holder});
  holder.end();
  EXPECT_EQ(pool.free_count(), 64);
  expect_whole();
}

TEST_F(DiscardTest, APinDoesNotKeepUndrawnBlocks) {
  const auto persona = keys(1, 3), one = joined(persona, keys(100, 2));
  visit(one);
  const auto pin = cache.pin(cache.find(persona), {});
  cache.discard(one, {}, ids_of(one));
  EXPECT_EQ(found_of(one), 0u);
  EXPECT_TRUE(cache.run_state(pin.path.run) == PrefixCache::RunState::kCorrupt);
  EXPECT_EQ(cache.pinned_count(), 3);
  expect_whole({}, {pin});
  visit(one);
  EXPECT_EQ(cache.pinned_count(cache.find(one)), 0);
  cache.unpin(pin);
  EXPECT_EQ(cache.pinned_count(), 0);
  EXPECT_EQ(cache.size(), 5);
  expect_whole();
}

TEST_F(DiscardTest, ABlockBeingCopiedStaysUntilItIs) {
  visit(keys(100, 3));
  const std::vector<TokenId> wanted{101, 102, 7};
  Holder holder(cache, pool, keys(100, 1), 2);
  const PartialMatch partial = cache.find_partial(cache.find(keys(100, 1)), {}, wanted, 1);
  ASSERT_EQ(partial.count, 2);
  const RadixNodeId run = cache.hold_partial(partial, 2);
  cache.discard(keys(100, 3), {}, ids_of(keys(100, 3)));
  EXPECT_EQ(found_of(keys(100, 3)), 0u);
  EXPECT_FALSE(pool.is_free(partial.block));
  cache.drop(run);
  EXPECT_TRUE(pool.is_free(partial.block));
  holder.end();
  EXPECT_EQ(pool.free_count(), 64);
}

// Personas of a few blocks with sessions behind them, and what is held, pinned, copied and discarded of them
// at random. The cache's own check counts every block and every reference; residency must tell exactly what
// is found.
class RandomDiscards : public Cache {
 protected:
  static constexpr size_t kPersonaBlocks = 4;
  static constexpr uint64_t kPersonas = 3, kSessions = 4;

  RandomDiscards() : Cache(96) {}

  uint64_t pick(uint64_t n) { return random_() % n; }
  static std::vector<Hash128> persona(uint64_t p) { return keys(1000 * p, kPersonaBlocks); }
  static std::vector<Hash128> session(uint64_t p, uint64_t s) {
    return joined(persona(p), keys(1000 * p + 100 * s, 6));
  }
  std::vector<Hash128> some_prompt() {
    auto prompt = session(1 + pick(kPersonas), 1 + pick(kSessions));
    prompt.resize(1 + pick(prompt.size()));
    return prompt;
  }

  void arrive() {
    const auto prompt = some_prompt();
    const size_t found = found_of(prompt);
    const auto needed = static_cast<int32_t>(prompt.size() - found);
    if (holders_.size() > 4 || pool.free_count() + pool.cached_count() < 2 * needed) return;
    auto cached = prompt;
    cached.resize(found);  // held before anything is evicted for the rest
    Holder& holder = holders_.emplace_back(cache, pool, cached, 1 + pick(3));
    const int32_t missing = needed - pool.free_count();
    if (missing > 0) cache.evict(missing);
    holder.hashes = prompt;
    for (int32_t i = 0; i < needed; ++i) holder.blocks.push_back(pool.allocate());
  }
  // Up to some block further than it is.
  void compute(Holder& holder) {
    const auto at = static_cast<size_t>(holder.path.count);
    if (at == holder.hashes.size()) return;
    const size_t end = at + 1 + pick(holder.hashes.size() - at);
    const auto ids = ids_of(holder.hashes);
    const uint64_t p = holder.hashes[0].hi / 1000;
    const auto insert = [&](size_t to, HolderKind kind, Hash128 name) {
      if (to <= static_cast<size_t>(holder.path.count)) return;
      cache.insert(holder.path, {.hashes = holder.hashes,
                                 .blocks = std::span(holder.blocks).first(to),
                                 .ids = std::span(ids).first(to * kBlockSize),
                                 .user = holder.of,
                                 .kind = kind,
                                 .holder = name,
                                 .planned = p == 1});
    };
    insert(std::min(end, kPersonaBlocks), HolderKind::kSet, key(p));
    if (end > kPersonaBlocks) {
      const uint64_t s = holder.hashes[kPersonaBlocks].hi / 100 * 100;
      insert(end, HolderKind::kSession, key(s));
    }
  }
  std::list<Holder>::iterator some_holder() {
    return std::next(holders_.begin(), static_cast<std::ptrdiff_t>(pick(holders_.size())));
  }
  void end(std::list<Holder>::iterator ends) {
    Holder& holder = *ends;
    std::vector<TokenId> ids{static_cast<TokenId>(10'000 + pick(3)), 5};
    ids.resize(1 + pick(2));
    if (holder.path.count > 0 && static_cast<size_t>(holder.path.count) < holder.blocks.size() &&
        cache.insert_tail(holder.path, {.block = holder.blocks.back(), .ids = ids, .user = holder.of})) {
      holder.blocks.pop_back();
      ++tails_;
    }
    holder.end(/*drew=*/pick(2) == 0);
    holders_.erase(ends);
  }
  void pin() {
    if (pins_.size() > 2) return;
    const auto match = cache.find(some_prompt());
    if (match.count > 0) pins_.push_back(cache.pin(match, {}));
  }
  bool is_corrupt(const PrefixCache::Pin& pin) const {
    return cache.run_state(pin.path.run) == PrefixCache::RunState::kCorrupt;
  }
  void unpin() {
    if (pins_.empty()) return;
    const auto at = pins_.begin() + static_cast<std::ptrdiff_t>(pick(pins_.size()));
    unpinned_corrupt_ += is_corrupt(*at);
    cache.unpin(*at);
    pins_.erase(at);
  }
  // A chain that ends in an inner run as often as a whole one; now and then until no trust can be left.
  void discard() {
    const auto chain = some_prompt();
    const int times = pick(3) == 0 ? 3 : 1;
    held_ += std::any_of(holders_.begin(), holders_.end(), [&](const Holder& h) {
      return h.path.count > 0 && !h.hashes.empty() && h.hashes[0] == chain[0];
    });
    for (int i = 0; i < times; ++i) cache.discard(chain, {}, ids_of(chain));
    if (times == 3) {
      EXPECT_EQ(found_of(chain), 0u);
    }
    ++discards_;
  }
  void check() {
    std::vector<const Holder*> holders;
    int32_t own = 0;
    for (const Holder& holder : holders_) {
      holders.push_back(&holder);
      own += static_cast<int32_t>(holder.blocks.size()) - holder.path.count;
    }
    expect_whole(holders, pins_);
    ASSERT_EQ(pool.free_count() + cache.size() + own, pool.total_count());
    std::vector<Resident> changes;
    residency.take_changes(changes);
    for (const Resident& r : changes) told_[{r.kind, r.name}] = r.tokens;
    for (uint64_t p = 1; p <= kPersonas; ++p) {
      const size_t of_set = found_of(persona(p));
      ASSERT_EQ(told_[std::pair(HolderKind::kSet, key(p))], static_cast<int64_t>(of_set * kBlockSize)) << p;
      for (uint64_t s = 1; s <= kSessions; ++s) {
        const size_t found = found_of(session(p, s));
        const auto tokens = static_cast<int64_t>(found > kPersonaBlocks ? found * kBlockSize : 0);
        ASSERT_EQ(told_[std::pair(HolderKind::kSession, key(1000 * p + 100 * s))], tokens) << p << ' ' << s;
      }
    }
  }
  void operate() {
    const uint64_t choice = pick(100);
    if (choice < 30) {
      arrive();
    } else if (choice < 60 && !holders_.empty()) {
      compute(*some_holder());
    } else if (choice < 80 && !holders_.empty()) {
      end(some_holder());
    } else if (choice < 86) {
      pin();
    } else if (choice < 91) {
      unpin();
    } else if (choice < 94) {
      cache.evict(1 + static_cast<int32_t>(pick(8)));
    } else {
      discard();
    }
  }

  std::mt19937 random_{11};
  std::list<Holder> holders_;
  std::vector<PrefixCache::Pin> pins_;
  std::map<std::pair<HolderKind, Hash128>, int64_t> told_;
  int64_t discards_ = 0, held_ = 0, tails_ = 0, unpinned_corrupt_ = 0;
};

TEST_F(RandomDiscards, BlocksAreCountedAndReportedExactly) {
  for (int i = 0; i < 60'000 && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    operate();
    check();
  }
  while (!holders_.empty() && !HasFailure()) end(holders_.begin());
  while (!pins_.empty()) unpin();
  check();
  EXPECT_EQ(pool.used_count(), 0);
  cache.evict(96);
  EXPECT_EQ(pool.free_count(), 96);
  EXPECT_GT(discards_, 2'000);
  EXPECT_GT(held_, 500);
  EXPECT_GT(tails_, 500);
  EXPECT_GT(unpinned_corrupt_, 200);
}

}  // namespace discard_test
}  // namespace troupe
