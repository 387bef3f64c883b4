#include "gateway/route/fleet/residency.h"

#include <gtest/gtest.h>

#include <map>

#include "common/core/random.h"
#include "gateway/route/fleet/residency_feed.h"
#include "gateway/route/placement/gossip.h"
#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace residency_test {

using testing_cluster::numbered_set;

ResidencyIndex::Put put_of(int key, NodeIndex node, int64_t tokens) {
  return {numbered_set(key), HolderKind::kSet, node, tokens, tokens};
}

TEST(Residency, HoldersAreFoundBySetAndByNode) {
  ResidencyIndex index(100);
  index.put(put_of(1, 3, 500));
  index.put(put_of(1, 0, 400));
  index.put(put_of(2, 3, 100));
  ASSERT_EQ(index.holders(numbered_set(1)).size(), 2u);
  EXPECT_EQ(index.holders(numbered_set(1))[0].node, 0u);
  EXPECT_EQ(index.tokens(numbered_set(1), 3), 500);
  EXPECT_EQ(index.tokens(numbered_set(1), 1), 0);
  EXPECT_EQ(index.items_of(3), 2u);
  index.put(put_of(1, 3, 0));
  EXPECT_EQ(index.tokens(numbered_set(1), 3), 0) << "nothing left is nothing held";
  index.drop_node(3);
  EXPECT_TRUE(index.holders(numbered_set(2)).empty());
  EXPECT_EQ(index.keys(), 1u);
  EXPECT_EQ(index.check(), "");
}

TEST(Residency, NodeOverBudgetForgetsTheLeastRecentlyUsed) {
  ResidencyIndex index(100);
  index.set_budget(0, 1000);
  for (int i = 0; i < 4; ++i) index.put(put_of(i, 0, 300));
  EXPECT_EQ(index.tokens(numbered_set(0), 0), 0);
  index.put(put_of(1, 0, 300));  // used again
  index.put(put_of(9, 0, 300));
  EXPECT_EQ(index.tokens(numbered_set(1), 0), 300);
  EXPECT_EQ(index.tokens(numbered_set(2), 0), 0);
  index.put(put_of(50, 0, 5000));
  EXPECT_EQ(index.items_of(0), 1u) << "larger than the budget, but there";
  EXPECT_EQ(index.check(), "");
}

TEST(Residency, AgreesWithAPlainModelUnderRandomUseAndStaysBounded) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Random random(seed);
    ResidencyIndex index(40);
    std::map<std::pair<int, NodeIndex>, int64_t> model;
    for (int step = 0; step < 4000; ++step) {
      const int key = static_cast<int>(random.below(60));
      const NodeIndex node = random.below(6);
      switch (random.below(10)) {
        case 0:
          EXPECT_EQ(index.drop(numbered_set(key), node), model.erase({key, node}) == 1);
          break;
        case 1:
          if (random.below(10) > 0) break;
          index.drop_node(node);
          std::erase_if(model, [&](const auto& held) { return held.first.second == node; });
          break;
        default:
          index.put(put_of(key, node, 1 + random.below(1000)));
          model[{key, node}] = index.tokens(numbered_set(key), node);
      }
      // The model learns from it which items it evicted within the bound.
      std::erase_if(model, [&](const auto& held) {
        return index.items_of(held.first.second) == 40 &&
               index.tokens(numbered_set(held.first.first), held.first.second) == 0;
      });
      for (NodeIndex n = 0; n < 6; ++n) ASSERT_LE(index.items_of(n), 40u);
      ASSERT_EQ(step % 50 == 0 ? index.check() : "", "") << seed;
    }
    for (const auto& [held, tokens] : model)
      ASSERT_EQ(index.tokens(numbered_set(held.first), held.second), tokens) << seed;
    for (NodeIndex n = 0; n < 6; ++n) index.drop_node(n);
    EXPECT_TRUE(index.empty());
    EXPECT_EQ(index.check(), "");
  }
}

struct Feeder {
  ResidencyFeeds feeds;
  ResidencyIndex index{1000};
  FeedResult tell(ResidencyEvent::Kind kind, uint64_t epoch, uint64_t seq, int set, int64_t tokens) {
    const ResidencyItem item{numbered_set(set), HolderKind::kSet, tokens};
    ResidencyEvent event;
    event.kind = kind;
    event.epoch = epoch;
    event.seq = seq;
    event.items = {&item, 1};
    return feeds.apply(0, event, index);
  }
  int64_t tokens(int set) const { return index.tokens(numbered_set(set), 0); }
};
using Kind = ResidencyEvent::Kind;

TEST(ResidencyFeed, FollowsASnapshotAndNumberedEvents) {
  Feeder f;
  EXPECT_EQ(f.tell(Kind::kSnapshot, 5, 10, 1, 500), FeedResult::kApplied);
  EXPECT_EQ(f.tell(Kind::kAdmitted, 5, 11, 2, 300), FeedResult::kApplied);
  EXPECT_EQ(f.tell(Kind::kEvicted, 5, 12, 1, 200), FeedResult::kApplied);
  EXPECT_EQ(f.tokens(1), 200) << "evicted from its end";
  EXPECT_EQ(f.tell(Kind::kEvicted, 5, 13, 1, 0), FeedResult::kApplied);
  EXPECT_EQ(f.tokens(1), 0);
  EXPECT_EQ(f.tell(Kind::kAdmitted, 5, 12, 9, 9), FeedResult::kOld);
  EXPECT_EQ(f.tokens(9), 0);
  EXPECT_TRUE(f.feeds.in_step(0));
}

TEST(ResidencyFeed, GapAsksForASnapshotUntilItComes) {
  Feeder f;
  f.tell(Kind::kSnapshot, 5, 10, 1, 500);
  EXPECT_EQ(f.tell(Kind::kAdmitted, 5, 13, 2, 300), FeedResult::kGap);
  EXPECT_EQ(f.tokens(1), 500) << "roughly right is better than nothing";
  EXPECT_EQ(f.tell(Kind::kAdmitted, 5, 14, 3, 300), FeedResult::kGap);
  EXPECT_FALSE(f.feeds.in_step(0));
  EXPECT_EQ(f.tell(Kind::kSnapshot, 5, 14, 4, 100), FeedResult::kApplied);
  EXPECT_EQ(f.tokens(1), 0);
  EXPECT_EQ(f.tell(Kind::kAdmitted, 5, 15, 2, 300), FeedResult::kApplied);
}

TEST(ResidencyFeed, NewEpochEmptiesTheIndex) {
  Feeder f;
  f.tell(Kind::kSnapshot, 5, 10, 1, 500);
  EXPECT_EQ(f.tell(Kind::kAdmitted, 6, 4, 2, 300), FeedResult::kGap);
  EXPECT_EQ(f.tokens(1), 0);
  EXPECT_EQ(f.tell(Kind::kAdmitted, 7, 1, 2, 300), FeedResult::kApplied) << "an empty cache's first event";
  EXPECT_EQ(f.tell(Kind::kSnapshot, 7, 1, 3, 1), FeedResult::kApplied);
  EXPECT_EQ(f.tell(Kind::kSnapshot, 7, 0, 4, 1), FeedResult::kOld);
  f.feeds.lost(0);
  EXPECT_FALSE(f.feeds.in_step(0));
  EXPECT_EQ(f.tokens(3), 1);
}

// A worker's cache, its events with losses and restarts, a reader that brings a snapshot on request.
TEST(ResidencyFeed, ConvergesHoweverManyEventsAreLost) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    Feeder f;
    std::map<int, int64_t> truth;
    uint64_t epoch = 1, seq = 0;
    const auto snapshot = [&] {
      std::vector<ResidencyItem> items;
      for (const auto& [set, tokens] : truth) items.push_back({numbered_set(set), HolderKind::kSet, tokens});
      ResidencyEvent event;
      event.epoch = epoch;
      event.seq = seq;
      event.items = items;
      EXPECT_EQ(f.feeds.apply(0, event, f.index), FeedResult::kApplied) << seed;
    };
    for (int step = 0; step < 400; ++step) {
      if (random.below(100) == 0) {
        truth.clear();
        epoch += 1;
        seq = 0;
      }
      const int set = static_cast<int>(random.below(20));
      const int64_t tokens = random.below(3) == 0 ? 0 : 16 * (1 + random.below(50));
      truth[set] = tokens;
      seq += 1;
      if (random.below(10) == 0) continue;  // lost
      if (f.tell(tokens > 0 ? Kind::kAdmitted : Kind::kEvicted, epoch, seq, set, tokens) == FeedResult::kGap)
        snapshot();
      ASSERT_EQ(f.index.check(), "");
      for (const auto& [known, held] : truth) ASSERT_EQ(f.tokens(known), held) << "seed " << seed;
    }
  }
}

TEST(Gossip, PlacementsTravelBetweenDifferentNodeNumberings) {
  auto here = testing_cluster::nodes(4);
  auto there = here;
  std::reverse(there.begin(), there.end());
  const ClusterView from(1, here), to(1, there);
  Placement p;
  p.set = numbered_set(1);
  p.session = hash_bytes("s");
  p.node = 1;
  p.set_tokens = 500;
  p.session_tokens = 700;
  p.session_charge = 200;
  const std::string message = encode_placements({&p, 1}, from);
  const auto decoded = decode_placements(message, to);
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->size(), 1u);
  EXPECT_EQ((*decoded)[0].node, 2u);
  EXPECT_EQ((*decoded)[0].set, p.set);
  EXPECT_EQ((*decoded)[0].session, p.session);
  EXPECT_EQ((*decoded)[0].session_tokens, 700u);
  EXPECT_FALSE(decode_placements(message.substr(0, message.size() - 1), to).ok());
  EXPECT_FALSE(decode_placements("", to).ok());
  EXPECT_FALSE(decode_placements("XXXX", to).ok());
  EXPECT_TRUE(decode_placements(message, *testing_cluster::cluster(0))->empty()) << "an unknown node";
}

TEST(Gossip, LedgersTravelByNodeNames) {
  auto here = testing_cluster::nodes(4);
  auto there = here;
  std::reverse(there.begin(), there.end());
  const ClusterView from(1, here), to(1, there);
  const std::vector<PeerLoad> loads = {{1, 7, 900}, {3, 0, 0}};
  const std::string message = encode_ledger(loads, from);
  const auto decoded = decode_ledger(message, to);
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->size(), 2u);
  EXPECT_EQ((*decoded)[0].node, 2u);
  EXPECT_EQ((*decoded)[0].in_flight, 7);
  EXPECT_EQ((*decoded)[0].pending_tokens, 900);
  EXPECT_EQ((*decoded)[1].node, 0u);
  EXPECT_FALSE(decode_ledger(message.substr(0, message.size() - 1), to).ok());
  EXPECT_FALSE(decode_ledger(encode_placements({}, from), to).ok()) << "another kind of message";
  const std::vector<PeerLoad> negative = {{1, -1, 0}};
  EXPECT_FALSE(decode_ledger(encode_ledger(negative, from), to).ok());
  EXPECT_TRUE(decode_ledger(message, *testing_cluster::cluster(0))->empty()) << "an unknown node";
}

}  // namespace residency_test
}  // namespace troupe::route
