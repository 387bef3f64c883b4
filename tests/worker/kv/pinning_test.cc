// Blocks that are kept although no request uses them: pins in the prefix cache, and the requests in the
// background that make them.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/worker/schedule/driver.h"
#include "worker/kv/prefix_cache.h"

namespace troupe {
namespace pins_test {

using testing::config_of;
using testing::Driver;
using testing::joined;
using testing::tokens_from;

std::vector<Hash128> chain(uint64_t name, size_t count) {
  std::vector<Hash128> hashes;
  for (size_t i = 0; i < count; ++i) {
    hashes.push_back(chain_hash(i == 0 ? Hash128{1, name} : hashes.back(), std::string_view("block")));
  }
  return hashes;
}

struct PinnedCache : ::testing::Test {
  // Computes a prompt and releases it, evicting blocks as needed. False: there is no room.
  bool visit(const std::vector<Hash128>& hashes, uint64_t user) {
    std::vector<BlockId> blocks;
    LockedPrefix path = cache.hold(cache.find(hashes), user, blocks);
    while (blocks.size() < hashes.size()) {
      if (pool.free_count() == 0) cache.evict(1);
      const BlockId block = pool.allocate();
      if (block < 0) break;
      blocks.push_back(block);
    }
    const bool room = blocks.size() == hashes.size();
    if (room) cache.insert(path, {.hashes = hashes, .blocks = blocks, .user = user});
    for (auto i = static_cast<size_t>(path.count); i < blocks.size(); ++i) pool.release(blocks[i]);
    cache.release(path);
    return room;
  }
  void expect_whole(std::vector<PrefixCache::Pin> pins) const {
    BlockSet in_cache(pool.total_count());
    PrefixCache::Holds holds;
    holds.pins = std::move(pins);
    const Status status = cache.verify(holds, in_cache);
    EXPECT_TRUE(status.ok()) << status;
  }
  BlockPool pool{32};
  PrefixCache cache{&pool, 4};
};

TEST_F(PinnedCache, PinnedBlocksAreEvictedOnlyAfterUnpin) {
  ASSERT_TRUE(visit(chain(1, 8), 1));
  const auto pin = cache.pin(cache.find(chain(1, 5)), {});
  EXPECT_EQ(cache.pinned_count(), 5);
  EXPECT_EQ(pool.used_count(), 5);
  EXPECT_EQ(cache.evict(32), 3);
  EXPECT_EQ(cache.find(chain(1, 8)).count, 5);
  expect_whole({pin});
  cache.unpin(pin);
  EXPECT_EQ(cache.pinned_count(), 0);
  EXPECT_EQ(cache.evict(32), 5);
  EXPECT_EQ(pool.free_count(), 32);
  expect_whole({});
}

TEST_F(PinnedCache, BlocksOfTwoPinsCountOnceAndStayForEither) {
  ASSERT_TRUE(visit(chain(1, 8), 1));
  const auto longer = cache.pin(cache.find(chain(1, 8)), {});
  const auto shorter = cache.pin(cache.find(chain(1, 3)), {});
  EXPECT_EQ(cache.pinned_count(), 8);
  EXPECT_EQ(cache.pinned_count(cache.find(chain(1, 6))), 6);
  cache.unpin(longer);
  EXPECT_EQ(cache.pinned_count(), 3);
  EXPECT_EQ(cache.pinned_count(cache.find(chain(1, 6))), 3);
  EXPECT_EQ(cache.evict(32), 5);
  expect_whole({shorter});
  cache.unpin(shorter);
}

// Against a model that knows a pinned chain's length and nothing else.
TEST_F(PinnedCache, RandomPromptsEvictNoPinnedBlock) {
  std::mt19937 random(7);
  const auto pick = [&](uint64_t n) { return static_cast<uint64_t>(random() % n); };
  std::map<uint64_t, std::pair<PrefixCache::Pin, size_t>> pins;  // by chain
  size_t refused = 0, kept = 0;
  for (int i = 0; i < 20'000 && !HasFailure(); ++i) {
    const uint64_t name = pick(12);
    if (pick(6) == 0 && !pins.contains(name)) {
      const PrefixCache::Match match = cache.find(chain(name, 1 + pick(8)));
      if (match.count == 0) continue;
      const auto count = static_cast<size_t>(match.count);
      pins.emplace(name, std::pair(cache.pin(match, {}), count));
    } else if (pick(12) == 0 && !pins.empty()) {
      const auto it = std::next(pins.begin(), static_cast<std::ptrdiff_t>(pick(pins.size())));
      cache.unpin(it->second.first);
      pins.erase(it);
    } else {
      refused += !visit(chain(name, 1 + pick(12)), pick(5));
    }
    int32_t pinned = 0;
    std::vector<PrefixCache::Pin> all;
    for (const auto& [pinned_name, pin] : pins) {
      pinned += static_cast<int32_t>(pin.second);
      ASSERT_GE(static_cast<size_t>(cache.find(chain(pinned_name, 12)).count), pin.second);
      all.push_back(pin.first);
      ++kept;
    }
    ASSERT_EQ(cache.pinned_count(), pinned);
    ASSERT_EQ(pool.used_count(), pinned);
    expect_whole(all);
  }
  EXPECT_GT(refused, 10u) << "pins did fill the cache";
  EXPECT_GT(kept, 10'000u);
}

NewRequest ahead(RequestId id, std::vector<TokenId> prompt, Hash128 pin = {}) {
  NewRequest request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.spec.background = true;
  request.spec.pin = pin;
  return request;
}

struct Planned : ::testing::Test {
  // Serves a request for a persona of 40 tokens with 8 tokens of its own.
  void visit(uint64_t persona, bool planned) {
    NewRequest request;
    request.id = ++ids;
    request.prompt = joined(tokens_from(100'000 * static_cast<TokenId>(persona), 40),
                            tokens_from(1000 * static_cast<TokenId>(ids), 8));
    request.max_new_count = 1;
    request.spec.set = {5, persona};
    request.spec.prefix_count = 40;
    request.spec.planned = planned;
    ASSERT_TRUE(driver.scheduler.add(std::move(request)).ok());
    while (driver.finished.empty() || driver.finished.back() != ids) driver.step();
  }
  int64_t held(uint64_t persona) {
    return driver.scheduler.residency().tokens(HolderKind::kSet, {5, persona});
  }
  // Serves other personas, each once, so that the cache turns over this often.
  void flood(int turnovers) {
    for (int i = 0; i < turnovers * 64 / 12 + 1; ++i) visit(10'000 + ids, false);
  }
  RequestId ids = 0;
  Driver driver{config_of(64)};
};

TEST_F(Planned, PlannedPrefixIsEvictedAfterAllOthers) {
  visit(1, true);
  visit(1, true);
  visit(2, false);
  visit(2, false);
  // More planned prefixes than there is room for beside the two, so that something has to go.
  for (uint64_t persona = 3; persona <= 7; ++persona) visit(persona, true);
  EXPECT_EQ(held(1), 40);
  EXPECT_EQ(held(2), 0) << "used last of the two, but at home elsewhere";
}

TEST_F(Planned, UseWithoutPlannedTakesTheMarkBack) {
  visit(1, true);
  visit(1, false);
  for (uint64_t persona = 3; persona <= 8; ++persona) visit(persona, true);
  EXPECT_EQ(held(1), 0);
}

TEST_F(Planned, MarkExpiresWithoutUse) {
  visit(1, true);
  flood(12);
  EXPECT_LT(held(1), 40);
}

TEST_F(Planned, LeastValuablePlannedPrefixIsEvictedWhenAllArePlanned) {
  for (uint64_t persona = 1; persona <= 12; ++persona) visit(persona, true);
  EXPECT_EQ(held(12), 40);
  EXPECT_LT(held(1), 40);
  const SchedulerStats& stats = driver.scheduler.stats();
  EXPECT_EQ(stats.blocks_free + stats.blocks_cached, stats.blocks_total);
}

constexpr Hash128 kPin{7, 7};

TEST(Background, PinIncludesPartlyFilledLastBlock) {
  Driver driver(config_of(32));
  const auto persona = tokens_from(100, 11);  // two blocks and three ids
  ASSERT_TRUE(driver.scheduler.add(ahead(1, persona, kPin)).ok());
  while (driver.finished.empty()) driver.step();
  EXPECT_EQ(driver.scheduler.stats().blocks_pinned, 3);
  for (RequestId id = 2; id < 40; ++id) {
    ASSERT_TRUE(driver.add(id, tokens_from(1000 * static_cast<TokenId>(id), 90), 2).ok());
    while (driver.finished.back() != id) driver.step();
  }
  ASSERT_TRUE(driver.add(50, joined(persona, tokens_from(5, 9))).ok());
  driver.step();
  EXPECT_EQ(driver.scheduler.cached_count(50), 11);
  while (driver.finished.back() != 50) driver.step();
  driver.scheduler.unpin(kPin);
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.stats().blocks_pinned, 0);
}

TEST(Background, LaterRequestIsComputedFirst) {
  SchedulerConfig config = config_of(64);
  config.max_num_batched_tokens = 16;
  Driver driver(config);
  ASSERT_TRUE(driver.scheduler.add(ahead(1, tokens_from(1, 64))).ok());
  driver.step();
  ASSERT_TRUE(driver.add(2, tokens_from(500, 48), 1).ok());
  const auto counts = driver.step();
  EXPECT_EQ(counts.at(2), 16);
  EXPECT_FALSE(counts.contains(1));
  driver.run_until_idle();
  EXPECT_EQ(driver.finished, (std::vector<RequestId>{2, 1}));
}

TEST(Background, MakesWayWhenMaxNumSeqsIsReached) {
  SchedulerConfig config = config_of(64);
  config.max_num_batched_tokens = 16;
  config.max_num_seqs = 1;
  Driver driver(config);
  ASSERT_TRUE(driver.scheduler.add(ahead(1, tokens_from(1, 120))).ok());
  driver.step();
  ASSERT_TRUE(driver.add(2, tokens_from(500, 8), 2).ok());
  driver.step();
  const auto counts = driver.step();
  EXPECT_TRUE(counts.contains(2));
  EXPECT_FALSE(counts.contains(1));
  driver.run_until_idle();
  EXPECT_EQ(driver.finished, (std::vector<RequestId>{2, 1}));
}

TEST(Background, MakesWayWhenBlocksRunOut) {
  SchedulerConfig config = config_of(32);
  config.max_num_batched_tokens = 16;
  Driver driver(config);
  ASSERT_TRUE(driver.scheduler.add(ahead(1, tokens_from(1, 120))).ok());
  driver.step();
  ASSERT_TRUE(driver.add(2, tokens_from(500, 32), 2).ok());
  driver.step();
  EXPECT_TRUE(driver.step().contains(2));
  driver.run_until_idle();
  EXPECT_EQ(driver.finished, (std::vector<RequestId>{2, 1}));
}

TEST(Background, RequestDoesNotAwaitItsBlocks) {
  SchedulerConfig config = config_of(64);
  config.max_num_batched_tokens = 16;
  Driver driver(config);
  const auto persona = tokens_from(1, 60);
  ASSERT_TRUE(driver.scheduler.add(ahead(1, persona)).ok());
  driver.step();
  ASSERT_TRUE(driver.add(2, joined(persona, tokens_from(900, 4)), 1).ok());
  EXPECT_TRUE(driver.step().contains(2));
  driver.run_until_idle();
}

struct BesidePin : ::testing::Test {
  // 32 blocks of 4, of which a prefix of 64 tokens is pinned: 64 tokens are left.
  void SetUp() override {
    ASSERT_TRUE(driver.scheduler.add(ahead(1, persona, kPin)).ok());
    while (driver.finished.empty()) driver.step();
    ASSERT_EQ(driver.scheduler.stats().blocks_pinned, 16);
  }
  static SchedulerConfig config() {
    SchedulerConfig config = config_of(32);
    config.output_reserve = OutputReserve::kNone;
    return config;
  }
  Driver driver{config()};
  const std::vector<TokenId> persona = tokens_from(1, 64);
};

TEST_F(BesidePin, RequestTooLargeIsRefusedAndLargestFittingOneRuns) {
  const Status refused = driver.add(2, tokens_from(500, 50), 16);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(to_std(refused.message()).find("64 of 128 are left"), std::string::npos) << refused;
  ASSERT_TRUE(driver.add(3, tokens_from(500, 50), 15).ok());
  while (driver.finished.back() != 3) driver.step();
  EXPECT_EQ(driver.sampled[3].size(), 15u);
}

TEST_F(BesidePin, BlocksSharedWithPinNeedNoRoom) {
  ASSERT_TRUE(driver.add(2, joined(persona, tokens_from(500, 50)), 15).ok());
  while (driver.finished.back() != 2) driver.step();
  EXPECT_EQ(driver.scheduler.cached_count(2), -1);
  EXPECT_EQ(driver.sampled[2].size(), 15u);
}

TEST_F(BesidePin, CutToFitAnswerIsCutToRemainingRoom) {
  NewRequest request;
  request.id = 2;
  request.prompt = tokens_from(500, 50);
  request.max_new_count = 79;
  request.spec.cut_to_fit = true;
  ASSERT_TRUE(driver.scheduler.add(std::move(request)).ok());
  while (driver.finished.back() != 2) driver.step();
  EXPECT_EQ(driver.sampled[2].size(), 15u);
}

TEST_F(BesidePin, ManyRequestsTakeTurnsAndAllEnd) {
  for (RequestId id = 10; id < 30; ++id) {
    ASSERT_TRUE(driver.add(id, tokens_from(1000 * static_cast<TokenId>(id), 10), 30).ok());
  }
  while (driver.finished.size() < 21) ASSERT_FALSE(driver.step().empty());
  EXPECT_GT(driver.scheduler.stats().preemptions_total, 0);
  EXPECT_EQ(driver.scheduler.stats().blocks_pinned, 16);
}

TEST_F(BesidePin, PinThatLeavesNoRoomForPresentRequestIsRefused) {
  ASSERT_TRUE(driver.add(2, tokens_from(500, 30), 30).ok());
  const Status refused = driver.scheduler.add(ahead(3, tokens_from(900, 12), {8, 8}));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  while (driver.finished.back() != 2) driver.step();
  EXPECT_TRUE(driver.scheduler.add(ahead(3, tokens_from(900, 12), {8, 8})).ok());
  while (driver.finished.back() != 3) driver.step();
  EXPECT_EQ(driver.scheduler.stats().blocks_pinned, 19);
}

TEST_F(BesidePin, PinInTheMakingReservesRoomUntilItsRequestEnds) {
  ASSERT_TRUE(driver.scheduler.add(ahead(2, tokens_from(900, 32), {8, 8})).ok());
  EXPECT_FALSE(driver.add(3, tokens_from(500, 50), 10).ok());
  driver.scheduler.remove(2);
  EXPECT_TRUE(driver.add(4, tokens_from(500, 50), 10).ok());
  while (driver.finished.back() != 4) driver.step();
}

TEST_F(BesidePin, SecondPinOfSameNameReplacesFirst) {
  ASSERT_TRUE(driver.scheduler.add(ahead(2, tokens_from(1, 32), kPin)).ok());
  while (driver.finished.back() != 2) driver.step();
  EXPECT_EQ(driver.scheduler.stats().blocks_pinned, 8);
}

TEST(PinnedResidency, PublishesThatSetIsPinnedAndUnpinned) {
  Driver driver(config_of(32));
  NewRequest request = ahead(1, tokens_from(1, 64), kPin);
  request.spec.set = {3, 3};
  request.spec.prefix_count = 64;
  ASSERT_TRUE(driver.scheduler.add(std::move(request)).ok());
  while (driver.finished.empty()) driver.step();
  std::vector<Resident> told;
  driver.scheduler.residency().take_changes(told);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].tokens, 64);
  EXPECT_TRUE(told[0].pinned);
  EXPECT_TRUE(told[0].grew);
  told.clear();
  driver.scheduler.unpin(kPin);
  driver.scheduler.residency().take_changes(told);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].tokens, 64);
  EXPECT_FALSE(told[0].pinned);
  told.clear();
  driver.scheduler.residency().snapshot(told);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_FALSE(told[0].pinned);
}

}  // namespace pins_test
}  // namespace troupe
