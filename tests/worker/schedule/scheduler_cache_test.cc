// Prefixes shared between requests, at the same time and later, are computed once.

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace scheduler_cache_test {

using namespace testing;

TEST(SchedulerCache, OnlyUncachedTokensAreComputed) {
  Driver driver(config_of(64));
  const auto persona = tokens_from(0, 40);
  ASSERT_TRUE(driver.add(1, joined(persona, tokens_from(100, 3))).ok());
  driver.run_until_idle();
  ASSERT_TRUE(driver.add(2, joined(persona, tokens_from(200, 5))).ok());
  EXPECT_EQ(driver.scheduler.stats().pending_prefill_tokens, 5);
  EXPECT_EQ(driver.scheduler.cached_count(2), -1);
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{2, 5}}));
  EXPECT_EQ(driver.scheduler.cached_count(2), 40);
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.stats().prefix_hit_tokens_total, 40);
  EXPECT_EQ(driver.scheduler.stats().prefix_query_tokens_total, 43 + 45);
}

TEST(SchedulerCache, LastPromptIdIsAlwaysComputed) {
  Driver driver(config_of(64));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 16), 1).ok());
  driver.run_until_idle();
  ASSERT_TRUE(driver.add(2, tokens_from(0, 16), 1).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{2, 1}}));  // its KV is known, its logits are not
  EXPECT_EQ(driver.scheduler.stats().blocks_cached, 4);          // and the duplicate is gone
}

TEST(SchedulerCache, NextTurnFindsGeneratedTokensCached) {
  Driver driver(config_of(64));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 8), 9).ok());
  driver.run_until_idle();
  const auto history = joined(tokens_from(0, 8), driver.sampled[1]);
  ASSERT_TRUE(driver.add(2, joined(history, tokens_from(500, 6))).ok());
  driver.step();
  EXPECT_EQ(driver.scheduler.cached_count(2), 16);  // 17 known ids, KV of the last was never computed
  driver.run_until_idle();
}

TEST(SchedulerCache, AnswerIsCachedWhenItEndsOrIsRemoved) {
  for (const bool leaves : {false, true}) {
    Driver driver(config_of(64));
    ASSERT_TRUE(driver.add(1, tokens_from(0, 8), 20).ok());
    for (int i = 0; i < 10; ++i) driver.step();
    if (leaves) driver.scheduler.remove(1);
    const auto history = joined(tokens_from(0, 8), driver.sampled[1]);  // 18 ids, 17 of them computed
    ASSERT_TRUE(driver.add(2, joined(history, tokens_from(500, 6))).ok());
    driver.step();
    EXPECT_EQ(driver.scheduler.cached_count(2), leaves ? 17 : 8);
    // Where both have computed the same blocks, the second to end switches to those of the first.
    driver.run_until_idle();
    EXPECT_TRUE(driver.scheduler.verify().ok()) << driver.scheduler.verify();
    EXPECT_EQ(driver.scheduler.stats().blocks_used, 0);
  }
}

TEST(SchedulerCache, NextTurnCopiesPartlyFilledLastBlock) {
  Driver driver(config_of(64));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 10), 5).ok());
  driver.run_until_idle();
  const auto history = joined(tokens_from(0, 10), driver.sampled[1]);
  ASSERT_TRUE(driver.add(2, joined(history, tokens_from(500, 6))).ok());
  EXPECT_EQ(driver.scheduler.stats().pending_prefill_tokens, 7);
  const Batch& batch = driver.scheduler.plan(TimePoint{});
  ASSERT_EQ(batch.items.size(), 1u);
  EXPECT_EQ(batch.items[0].start, 14);  // three blocks and two tokens; KV of the last was never computed
  EXPECT_EQ(driver.scheduler.cached_count(2), 14);
  ASSERT_EQ(batch.copies.size(), 1u);
  EXPECT_EQ(batch.copies[0].to, batch.items[0].blocks[3]);
  EXPECT_NE(batch.copies[0].from, batch.copies[0].to);
  std::vector<RequestId> finished;
  driver.scheduler.commit(std::vector<StepToken>{{2, 9, false}}, TimePoint{}, finished);
  EXPECT_TRUE(driver.scheduler.plan(TimePoint{}).copies.empty());
  driver.scheduler.abandon();
  driver.run_until_idle();
}

TEST(SchedulerCache, PrefixEndingInsideBlockIsSharedWhole) {
  Driver driver(config_of(64));
  const auto persona = tokens_from(0, 10);  // two blocks and a half
  ASSERT_TRUE(driver.add(1, joined(persona, tokens_from(100, 9)), 1).ok());
  driver.run_until_idle();
  ASSERT_TRUE(driver.add(2, joined(persona, tokens_from(200, 5)), 1).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{2, 5}}));
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.stats().prefix_hit_tokens_total, 10);
}

TEST(SchedulerCache, AbandonedStepRepeatsItsCopies) {
  Driver driver(config_of(64));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 11), 1).ok());
  driver.run_until_idle();
  ASSERT_TRUE(driver.add(2, joined(tokens_from(0, 11), tokens_from(500, 6)), 1).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(driver.scheduler.plan(TimePoint{}).copies.size(), 1u);
    driver.scheduler.abandon();
    EXPECT_TRUE(driver.scheduler.verify().ok()) << driver.scheduler.verify();
  }
  driver.run_until_idle();
}

TEST(SchedulerCache, RequestsOfDifferentSaltsShareNothing) {
  Driver driver(config_of(64));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 20), 1, {1, 1}).ok());
  driver.run_until_idle();
  ASSERT_TRUE(driver.add(2, tokens_from(0, 20), 1, {2, 2}).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{2, 20}}));
}

TEST(SchedulerCache, DisabledPrefixCachingKeepsNoBlocks) {
  SchedulerConfig config = config_of(64);
  config.enable_prefix_caching = false;
  Driver driver(config);
  for (RequestId id = 1; id <= 2; ++id) {
    ASSERT_TRUE(driver.add(id, tokens_from(0, 20), 1).ok());
    EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{id, 20}}));
  }
  EXPECT_EQ(driver.scheduler.stats().blocks_free, 64);
  EXPECT_EQ(driver.scheduler.stats().prefix_query_tokens_total, 0);
}

// A block is not worth a copy for a few tokens that both requests begin with by chance.
TEST(SchedulerCache, ShortPartialMatchIsNotCopied) {
  SchedulerConfig config = config_of(16);
  config.block_size = 16;
  for (int common = 1; common <= 8; ++common) {
    Driver driver(config);
    ASSERT_TRUE(driver.add(1, tokens_from(0, 40), 1).ok());
    driver.run_until_idle();
    ASSERT_TRUE(driver.add(2, joined(tokens_from(0, 16 + common), tokens_from(500, 20)), 1).ok());
    EXPECT_EQ(driver.scheduler.plan(TimePoint{}).copies.size(), common < 4 ? 0u : 1u) << common;
    EXPECT_EQ(driver.scheduler.cached_count(2), common < 4 ? 16 : 16 + common);
    driver.scheduler.abandon();
    driver.run_until_idle();
  }
}

// A simulator's requests come with the hashes of their blocks.
TEST(SchedulerCache, DisabledPrefixCachingAnnouncesNoBlocks) {
  SchedulerConfig config = config_of(64);
  config.enable_prefix_caching = false;
  Driver driver(config);
  for (RequestId id = 1; id <= 2; ++id) {
    NewRequest request;
    request.id = id;
    request.prompt_count = 20;
    request.max_new_count = 3;
    for (uint64_t i = 0; i < 5; ++i) request.block_hashes.push_back({1, i + 1});
    ASSERT_TRUE(driver.scheduler.add(std::move(request)).ok());
  }
  for (int step = 0; step < 4; ++step) driver.step();  // verifies
  driver.run_until_idle();
  EXPECT_EQ(driver.finished, (std::vector<RequestId>{1, 2}));
}

TEST(SchedulerCache, ColdRequestsComputeSharedPersonaOnce) {
  SchedulerConfig config = config_of(2000);
  config.max_num_batched_tokens = 96;
  config.max_model_len = 1000;
  Driver driver(config);
  const auto persona = tokens_from(0, 400);
  for (int i = 0; i < 64; ++i) {
    const auto own = tokens_from(10'000 + 100 * i, 7);
    ASSERT_TRUE(driver.add(static_cast<RequestId>(i), joined(persona, own), 3).ok());
  }
  driver.run_until_idle();
  EXPECT_EQ(driver.finished.size(), 64u);
  // The persona once, own suffixes, and two of three emitted tokens each fed back.
  EXPECT_EQ(driver.scheduler.stats().computed_tokens_total, 400 + 64 * 7 + 64 * 2);
  EXPECT_EQ(driver.scheduler.stats().prefix_hit_tokens_total, 63 * 400);
}

TEST(SchedulerCache, ColdRequestsOfOneStepShareTheirPrefix) {
  Driver driver(config_of(64));
  ASSERT_TRUE(driver.add(1, tokens_from(0, 20)).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(0, 22)).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 20}}));  // there would be room for both
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 1}, {2, 2}}));
  driver.run_until_idle();
}

TEST(SchedulerCache, RequestBehindOneAwaitingPrefixIsAdmitted) {
  SchedulerConfig config = config_of(200);
  config.max_num_batched_tokens = 32;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 100)).ok());
  driver.step();
  ASSERT_TRUE(driver.add(2, tokens_from(0, 101)).ok());     // waits for 1
  ASSERT_TRUE(driver.add(3, tokens_from(1000, 100)).ok());  // does not
  const auto counts = driver.step();
  EXPECT_EQ(counts.at(1), 32);
  EXPECT_FALSE(counts.contains(2));
  driver.step();
  EXPECT_TRUE(driver.step().contains(3));
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.cached_count(2), -1);  // gone
  EXPECT_EQ(driver.scheduler.stats().prefix_hit_tokens_total, 100);
}

TEST(SchedulerCache, RemovedRequestHandsItsPrefixToWaitingOne) {
  SchedulerConfig config = config_of(200);
  config.max_num_batched_tokens = 32;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 100)).ok());
  ASSERT_TRUE(driver.add(2, tokens_from(0, 101)).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 32}}));
  driver.scheduler.remove(1);
  EXPECT_TRUE(driver.scheduler.verify().ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{2, 32}}));
  EXPECT_EQ(driver.scheduler.cached_count(2), 32);  // what the other had done is kept
  driver.run_until_idle();
}

TEST(SchedulerCache, EvictionMakesRoomForNewPrefixes) {
  Driver driver(config_of(12));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(driver.add(static_cast<RequestId>(i), tokens_from(1000 * i, 30), 2).ok());
    driver.run_until_idle();
  }
  EXPECT_EQ(driver.finished.size(), 20u);
}

// A persona's first request came without a name, as from a client of the worker's own.
TEST(SchedulerCache, SetIsResidentIfAnotherRequestComputedItsPrefix) {
  Driver driver(config_of(64));
  const auto persona = tokens_from(0, 18);  // four blocks and a half
  ASSERT_TRUE(driver.add(1, joined(persona, tokens_from(100, 3))).ok());
  driver.run_until_idle();
  NewRequest named;
  named.id = 2;
  named.prompt = joined(persona, tokens_from(200, 3));
  named.spec.set = Hash128{0, 7};
  named.spec.prefix_count = 18;
  ASSERT_TRUE(driver.scheduler.add(named).ok());
  EXPECT_EQ(driver.scheduler.residency().tokens(HolderKind::kSet, named.spec.set), 0);
  driver.run_until_idle();
  EXPECT_EQ(driver.scheduler.residency().tokens(HolderKind::kSet, named.spec.set), 16);
}

}  // namespace scheduler_cache_test
}  // namespace troupe
