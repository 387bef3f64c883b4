// The conversations that a cache describes, and their ids, compared with the requests that were served, in
// whatever order they came, branched, shared beginnings and were evicted.

#include "worker/kv/conversations.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "worker/schedule/scheduler.h"

namespace troupe {
namespace conversations_test {

constexpr int32_t kBlockSize = 4;

struct Turn {
  std::vector<TokenId> ids;
  int32_t prefix_count = 0, new_count = 1;
  Hash128 set = {}, session = {}, salt = {};
};

std::vector<TokenId> ids_from(TokenId first, int32_t count) {
  std::vector<TokenId> ids;
  for (TokenId id = first; id < first + count; ++id) ids.push_back(id);
  return ids;
}

struct World {
  explicit World(int32_t block_count = 256) : scheduler(config(block_count)) {}
  static SchedulerConfig config(int32_t block_count) {
    SchedulerConfig c;
    c.block_size = kBlockSize;
    c.block_count = block_count;
    c.max_model_len = 400;
    return c;
  }
  // Serves a turn and returns all its ids that were computed: all but the last token drawn.
  std::vector<TokenId> serve(const Turn& turn) {
    NewRequest request;
    request.id = ++last_id;
    request.prompt = turn.ids;
    request.max_new_count = turn.new_count;
    request.spec.set = turn.set;
    request.spec.session = turn.session;
    request.spec.salt = turn.salt;
    request.spec.prefix_count = turn.prefix_count;
    EXPECT_TRUE(scheduler.add(std::move(request)).ok());
    std::vector<TokenId> said = turn.ids;
    for (std::vector<RequestId> finished; finished.empty();) {
      const Batch& batch = scheduler.plan(now);
      std::vector<StepToken> tokens;
      for (const BatchItem& item : batch.items) {
        if (item.samples) tokens.push_back({item.id, said.emplace_back(drawn++), false});
      }
      scheduler.commit(tokens, now, finished);
    }
    EXPECT_TRUE(scheduler.verify().ok());
    said.pop_back();
    return said;
  }
  Conversation one(const Hash128& session) const {
    const auto found = scheduler.conversation(session);
    EXPECT_TRUE(found.has_value());
    return found.value_or(Conversation{});
  }

  Scheduler scheduler;
  TimePoint now{};
  RequestId last_id = 0;
  TokenId drawn = 5000;
};

struct Conversations : ::testing::Test, World {};

constexpr Hash128 kSet{1, 1}, kAnn{2, 1}, kBen{2, 2}, kSalt{3, 1};

TEST_F(Conversations, DescribeAllThatTheNextTurnFinds) {
  const auto said = serve({.ids = ids_from(10, 21),
                           .prefix_count = 12,
                           .new_count = 6,
                           .set = kSet,
                           .session = kAnn,
                           .salt = kSalt});
  const Conversation c = one(kAnn);
  EXPECT_EQ(c.ids, said) << "with what does not fill a block";
  EXPECT_EQ(c.token_count, 26);
  EXPECT_EQ(c.prefix_count, 12);
  EXPECT_EQ(c.set, kSet);
  EXPECT_EQ(c.session, kAnn);
  EXPECT_EQ(c.salt, kSalt);
  EXPECT_FALSE(scheduler.conversation(kBen).has_value());
}

TEST_F(Conversations, ListIsOrderedByLastUseAndLimited) {
  for (TokenId i = 0; i < 6; ++i) {
    serve({.ids = ids_from(100 * i, 20), .new_count = 5, .session = {2, static_cast<uint64_t>(i)}});
  }
  serve({.ids = ids_from(200, 20), .new_count = 9, .session = {2, 2}});
  const auto listed = scheduler.conversations(3);
  ASSERT_EQ(listed.size(), 3u);
  EXPECT_EQ(listed[0].session, (Hash128{2, 2}));
  EXPECT_EQ(listed[1].session, (Hash128{2, 5}));
  EXPECT_EQ(listed[2].session, (Hash128{2, 4}));
  EXPECT_TRUE(listed[0].ids.empty());
  EXPECT_EQ(listed[0].token_count, 28);
  EXPECT_TRUE(listed[0].set.is_zero());
  EXPECT_EQ(scheduler.conversations(100).size(), 6u);
}

TEST_F(Conversations, BranchUsedLastIsDescribed) {
  const auto first = serve({.ids = ids_from(10, 20), .new_count = 30, .session = kAnn});
  const auto swiped = serve({.ids = ids_from(10, 20), .new_count = 12, .session = kAnn});
  ASSERT_LT(swiped.size(), first.size());
  EXPECT_EQ(one(kAnn).ids, swiped);
  EXPECT_EQ(scheduler.conversations(9).size(), 1u);
}

TEST_F(Conversations, UnnamedOrPrefixOnlySessionIsNotListed) {
  serve({.ids = ids_from(10, 20), .new_count = 9});
  serve({.ids = ids_from(50, 13), .prefix_count = 12, .new_count = 1, .set = kSet, .session = kAnn});
  EXPECT_TRUE(scheduler.conversations(9).empty());
}

TEST_F(Conversations, AnotherWorkerThatComputesTheIdsHasTheSame) {
  const Turn turn{.ids = ids_from(10, 21), .prefix_count = 12, .new_count = 9, .set = kSet, .session = kAnn};
  serve(turn);
  const Conversation c = one(kAnn);
  World other;
  other.serve(
      {.ids = c.ids, .prefix_count = c.prefix_count, .set = c.set, .session = c.session, .salt = c.salt});
  EXPECT_EQ(other.one(kAnn).ids, c.ids);
  EXPECT_EQ(other.scheduler.residency().tokens(HolderKind::kSession, kAnn),
            scheduler.residency().tokens(HolderKind::kSession, kAnn));
}

// Random turns of some sessions in a small cache: every described conversation begins as a served turn.
TEST(ConversationsAtRandom, DescribeOnlyIdsThatWereServed) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    World world(48);
    std::map<uint64_t, std::vector<std::vector<TokenId>>> said;  // by session: its turns
    for (int t = 0; t < 60; ++t) {
      const uint64_t session = 1 + random() % 6;
      auto& turns = said[session];
      std::vector<TokenId> ids = ids_from(10, 9);  // all share a beginning
      if (!turns.empty() && turns.back().size() < 90 && random() % 4 != 0) ids = turns.back();
      const auto more = ids_from(static_cast<TokenId>(1000 * session + random() % 50),
                                 1 + static_cast<int32_t>(random() % 9));
      ids.insert(ids.end(), more.begin(), more.end());
      turns.push_back(world.serve({.ids = ids,
                                   .prefix_count = 8,
                                   .new_count = 1 + static_cast<int32_t>(random() % 9),
                                   .set = kSet,
                                   .session = {2, session}}));
      for (const Conversation& listed : world.scheduler.conversations(10)) {
        const auto c = world.scheduler.conversation(listed.session);
        ASSERT_TRUE(c.has_value());
        ASSERT_EQ(static_cast<size_t>(c->token_count), c->ids.size());
        ASSERT_EQ(c->token_count, listed.token_count);
        const auto& own = said[listed.session.lo];
        ASSERT_TRUE(std::any_of(own.begin(), own.end(),
                                [&](const auto& turn) {
                                  return turn.size() >= c->ids.size() &&
                                         std::equal(c->ids.begin(), c->ids.end(), turn.begin());
                                }))
            << "seed " << seed << ", turn " << t;
      }
    }
  }
}

}  // namespace conversations_test
}  // namespace troupe
