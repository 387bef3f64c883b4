// Gossip without sockets: what a gateway sends to its peers, and when, as messages arrive, fail or are late.
// (The same with sockets: tests/gateway/cluster/gossip_test.cc.)

#include "gateway/route/gossip_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>

#include "gateway/route/placement/table_codec.h"
#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace {

using namespace testing_cluster;
using std::chrono::milliseconds;

RouterOptions router_options(int name, int64_t gateways) {
  RouterOptions options;
  options.affinity.mode = Mode::kGossip;
  options.affinity.gateways = gateways;
  options.affinity.peer_ledger = true;
  options.name = Hash128{0, static_cast<uint64_t>(name)};
  return options;
}

GossipRules quick_rules() {
  GossipRules rules;
  rules.ledger = true;
  rules.interval = milliseconds(20);
  rules.refresh = milliseconds(1000);
  rules.retry_max = milliseconds(500);
  rules.forget_after = milliseconds(3000);
  rules.placements_max = 100;
  return rules;
}

struct Gateway {
  Gateway(int its_name, int64_t gateways, const GossipRules& rules)
      : router(router_over(cluster(4), router_options(its_name, gateways))), rounds(rules, router) {}
  Router router;
  GossipRounds rounds;
};

// A gateway with one peer, whose messages are looked at.
class GossipRoundsOfOne : public ::testing::Test {
 protected:
  GossipRoundsOfOne() { one_.rounds.add(0, at_ms(0)); }
  // The first message has been sent and answered by a gateway of that name.
  void known(int name = 2) {
    ASSERT_TRUE(one_.rounds.send_due(0, at_ms(20)));
    one_.rounds.begin(0, at_ms(20));
    one_.rounds.answered(0, announcement_of(name), at_ms(20));
  }
  static GatewayAnnouncement announcement_of(int name) {
    GatewayAnnouncement announcement;
    announcement.name = Hash128{0, static_cast<uint64_t>(name)};
    return announcement;
  }
  void fail(int64_t ms) {
    one_.rounds.begin(0, at_ms(ms));
    one_.rounds.failed(0, at_ms(ms));
  }
  void serve(int set, NodeIndex node, int64_t ms) {
    serve_at(one_.router, key(set, -1), node, at_ms(ms));
    one_.rounds.collect(at_ms(ms));
  }
  std::vector<Hash128> sets_sent(int64_t ms) {
    std::vector<Hash128> sets;
    for (const Placement& placed : one_.rounds.begin(0, at_ms(ms)).placements) sets.push_back(placed.set);
    return sets;
  }

  Gateway one_{5, 2, quick_rules()};
};

TEST_F(GossipRoundsOfOne, MessageIsDueWithNewsOrAfterTheRefresh) {
  known();
  EXPECT_EQ(one_.rounds.next_check(0), at_ms(40));
  one_.rounds.collect(at_ms(40));  // the first ledger is all of it
  EXPECT_TRUE(one_.rounds.send_due(0, at_ms(40)));
  one_.rounds.begin(0, at_ms(40));
  one_.rounds.answered(0, announcement_of(2), at_ms(40));
  EXPECT_FALSE(one_.rounds.send_due(0, at_ms(60))) << "nothing is new";
  EXPECT_EQ(one_.rounds.next_check(0), at_ms(80));
  serve(1, 3, 70);
  EXPECT_TRUE(one_.rounds.send_due(0, at_ms(80)));
  EXPECT_THAT(sets_sent(80), testing::ElementsAre(numbered_set(1)));
  one_.rounds.answered(0, announcement_of(2), at_ms(81));
  EXPECT_FALSE(one_.rounds.send_due(0, at_ms(1079)));
  EXPECT_TRUE(one_.rounds.send_due(0, at_ms(1080)));
}

TEST_F(GossipRoundsOfOne, PeerThatFailsIsTriedAtIntervalsThatDouble) {
  ASSERT_TRUE(one_.rounds.send_due(0, at_ms(20)));
  one_.rounds.begin(0, at_ms(20));
  EXPECT_EQ(one_.rounds.failed(0, at_ms(20)).answers, false) << "the first outcome is noted";
  for (const int64_t pause : {80, 160, 320, 500, 500}) {
    const TimePoint next = one_.rounds.next_check(0);
    EXPECT_EQ(next, at_ms(20) + milliseconds(pause));
    ASSERT_TRUE(one_.rounds.send_due(0, next)) << "it is tried without news";
    one_.rounds.begin(0, at_ms(20));
    EXPECT_EQ(one_.rounds.failed(0, at_ms(20)).answers, std::nullopt) << "as before";
  }
  one_.rounds.begin(0, at_ms(20));
  EXPECT_EQ(one_.rounds.answered(0, announcement_of(2), at_ms(20)).answers, true);
  EXPECT_EQ(one_.rounds.next_check(0), at_ms(40));
}

TEST_F(GossipRoundsOfOne, RetriesAreBoundedWhereTheIntervalIsLonger) {
  GossipRules rules = quick_rules();
  rules.interval = milliseconds(60'000);
  Gateway slow(1, 2, rules);
  slow.rounds.add(0, at_ms(0));
  slow.rounds.begin(0, at_ms(0));
  slow.rounds.failed(0, at_ms(0));
  EXPECT_EQ(slow.rounds.next_check(0), at_ms(60'000));
}

TEST_F(GossipRoundsOfOne, RefusedPlacementsAreSentAgainBeforeThoseThatCameMeanwhile) {
  known();
  serve(1, 3, 30);
  one_.rounds.begin(0, at_ms(40));
  serve(2, 3, 50);
  one_.rounds.failed(0, at_ms(60));
  EXPECT_THAT(sets_sent(200), testing::ElementsAre(numbered_set(1), numbered_set(2)));
  EXPECT_EQ(one_.rounds.dropped(), 0u);
}

TEST_F(GossipRoundsOfOne, NewestPlacementsAreKeptForAPeerThatFails) {
  known();
  fail(40);
  for (int set = 0; set < 120; ++set) serve(set, 3, 50);
  EXPECT_EQ(one_.rounds.dropped(), 20u);
  const std::vector<Hash128> sets = sets_sent(200);
  ASSERT_EQ(sets.size(), 100u);
  EXPECT_EQ(sets.front(), numbered_set(20));
  EXPECT_EQ(sets.back(), numbered_set(119));
}

TEST_F(GossipRoundsOfOne, PlacementsOnANodeThatDiedAreNotSentLater) {
  known();
  fail(40);
  serve(1, 2, 50);
  serve(2, 3, 50);
  one_.router.forget_node(2);
  const std::vector<Hash128> sets = sets_sent(200);
  EXPECT_FALSE(sets.empty());
  EXPECT_THAT(sets, testing::Each(numbered_set(2)));
}

TEST_F(GossipRoundsOfOne, LedgerOfAFailedMessageIsNotSentAgain) {
  known();
  crowd(one_.router, 1, 3, at_ms(30));
  one_.rounds.collect(at_ms(30));
  const GossipMessage first = one_.rounds.begin(0, at_ms(40));
  const auto of_node = [](const GossipMessage& message, NodeIndex node) {
    for (const PeerLoad& load : message.ledger) {
      if (load.node == node) return load.in_flight;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(of_node(first, 1), 3);
  one_.rounds.failed(0, at_ms(50));
  EXPECT_TRUE(one_.rounds.begin(0, at_ms(200)).ledger.empty());
  one_.rounds.failed(0, at_ms(200));
  one_.rounds.collect(at_ms(1100));
  EXPECT_EQ(of_node(one_.rounds.begin(0, at_ms(1100)), 1), 3) << "the refresh has all of it";
}

TEST_F(GossipRoundsOfOne, ReusedSlotTakesNothingOfTheLastNode) {
  known();
  serve(1, 2, 30);
  one_.rounds.begin(0, at_ms(40));
  serve(2, 2, 50);
  serve(3, 3, 50);
  one_.rounds.forget_node(2);
  one_.rounds.failed(0, at_ms(60));
  const GossipMessage message = one_.rounds.begin(0, at_ms(200));
  for (const Placement& placed : message.placements) EXPECT_EQ(placed.set, numbered_set(3));
  EXPECT_FALSE(message.placements.empty());
  for (const PeerLoad& load : message.ledger) EXPECT_NE(load.node, 2u);
}

TEST_F(GossipRoundsOfOne, OwnAddressIsLeftOut) {
  one_.rounds.add(1, at_ms(0));
  one_.rounds.begin(0, at_ms(20));
  const GossipNotes notes = one_.rounds.answered(0, announcement_of(5), at_ms(20));
  EXPECT_TRUE(notes.is_self);
  EXPECT_EQ(one_.router.known().gateways, 2) << "itself and the other peer, which may come back";
  serve(1, 3, 30);
  EXPECT_FALSE(one_.rounds.send_due(0, at_ms(2000)));
  EXPECT_TRUE(one_.rounds.send_due(1, at_ms(2000)));
}

TEST_F(GossipRoundsOfOne, AnswerOfAnotherKindCountsAsTaken) {
  serve(1, 3, 10);
  one_.rounds.begin(0, at_ms(20));
  EXPECT_EQ(one_.rounds.answered(0, std::nullopt, at_ms(20)).answers, true);
  EXPECT_TRUE(sets_sent(40).empty());
}

TEST_F(GossipRoundsOfOne, NewcomerIsWelcomedOnceAndByTheSmallestNameOnly) {
  known();
  serve(1, 3, 30);
  one_.rounds.begin(0, at_ms(40));
  one_.rounds.answered(0, announcement_of(2), at_ms(40));
  one_.rounds.begin(0, at_ms(60));
  one_.rounds.answered(0, announcement_of(3), at_ms(60));  // the peer has begun anew
  EXPECT_THAT(sets_sent(80), testing::ElementsAre(numbered_set(1)));
  one_.rounds.answered(0, announcement_of(3), at_ms(80));
  EXPECT_TRUE(sets_sent(100).empty());
  one_.rounds.answered(0, announcement_of(3), at_ms(100));

  // A second peer has a smaller name than ours, and welcomes a gateway that begins anew, as long as it
  // answers.
  one_.rounds.add(1, at_ms(100));
  one_.rounds.begin(1, at_ms(120));
  one_.rounds.answered(1, announcement_of(2), at_ms(120));
  one_.rounds.begin(0, at_ms(140));
  one_.rounds.answered(0, announcement_of(4), at_ms(140));
  EXPECT_TRUE(sets_sent(160).empty());
  one_.rounds.begin(1, at_ms(160));
  one_.rounds.failed(1, at_ms(160));
  one_.rounds.answered(0, announcement_of(6), at_ms(160));
  EXPECT_THAT(sets_sent(180), testing::ElementsAre(numbered_set(1)));
}

TEST_F(GossipRoundsOfOne, SenderThatFallsSilentIsForgottenWithItsLedger) {
  const PeerLoad load{.node = 1, .in_flight = 5, .pending_tokens = 100};
  GossipMessage message;
  message.announcement = announcement_of(2);
  message.ledger = std::span(&load, 1);
  ASSERT_TRUE(one_.rounds.receive(message, at_ms(100)).ok());
  EXPECT_EQ(one_.router.loads().at(1).peers_requests, 5);
  one_.rounds.collect(at_ms(3100));
  EXPECT_EQ(one_.router.loads().at(1).peers_requests, 5);
  one_.rounds.collect(at_ms(3101));
  EXPECT_EQ(one_.router.loads().at(1).peers_requests, 0);
}

TEST_F(GossipRoundsOfOne, UnknownSenderWakesPeersThatFail) {
  known();
  for (int64_t ms = 40; ms < 44; ++ms) fail(ms);
  EXPECT_GT(one_.rounds.next_check(0), at_ms(300));
  GossipMessage message;
  message.announcement = announcement_of(2);
  EXPECT_TRUE(one_.rounds.receive(message, at_ms(100))->wakes);
  EXPECT_EQ(one_.rounds.next_check(0), at_ms(100));
  EXPECT_FALSE(one_.rounds.receive(message, at_ms(120))->wakes) << "it is known now";
}

TEST_F(GossipRoundsOfOne, OwnMessageAndTooManySendersChangeNothing) {
  GossipRules rules = quick_rules();
  rules.senders_max = 1;
  Gateway full(1, 2, rules);
  const PeerLoad load{.node = 1, .in_flight = 5, .pending_tokens = 100};
  GossipMessage message;
  message.ledger = std::span(&load, 1);
  message.announcement = announcement_of(1);
  ASSERT_TRUE(full.rounds.receive(message, at_ms(0)).ok());
  EXPECT_EQ(full.router.loads().at(1).peers_requests, 0) << "its own";
  message.announcement = announcement_of(2);
  ASSERT_TRUE(full.rounds.receive(message, at_ms(0)).ok());
  message.announcement = announcement_of(3);
  EXPECT_EQ(full.rounds.receive(message, at_ms(0)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.router.loads().at(1).peers_requests, 5) << "of the first";
}

TEST_F(GossipRoundsOfOne, MalformedTableAndSampleAreRefused) {
  GossipMessage message;
  message.announcement = announcement_of(2);
  message.table = "no table";
  EXPECT_FALSE(one_.rounds.receive(message, at_ms(0)).ok());
  message.table = {};
  message.sample = "no sample";
  EXPECT_FALSE(one_.rounds.receive(message, at_ms(0)).ok());
}

TEST_F(GossipRoundsOfOne, GatewayWithOtherStrictSetsIsNotedOnce) {
  GossipMessage message;
  message.announcement = announcement_of(2);
  EXPECT_FALSE(one_.rounds.receive(message, at_ms(0))->other_sets);
  EXPECT_EQ(one_.rounds.other_sets(), 0u);
  message.announcement.strict_sets = 8;
  EXPECT_TRUE(one_.rounds.receive(message, at_ms(20))->other_sets);
  EXPECT_FALSE(one_.rounds.receive(message, at_ms(40))->other_sets);
  EXPECT_EQ(one_.rounds.other_sets(), 1u);
}

using GossipRoundsDeath = GossipRoundsOfOne;
TEST_F(GossipRoundsDeath, CallerKeepsTheOrderOfCalls) {
  EXPECT_DEATH(one_.rounds.answered(0, std::nullopt, at_ms(0)), "not sent");
  EXPECT_DEATH(one_.rounds.next_check(7), "never added");
  EXPECT_DEATH(one_.rounds.add(0, at_ms(0)), "in use");
  one_.rounds.begin(0, at_ms(0));
  EXPECT_DEATH(one_.rounds.begin(0, at_ms(0)), "one message to a peer at a time");
}

// Gateways that are all each other's peers; messages to one that is down fail.
class GossipRoundsOfAll : public ::testing::Test {
 protected:
  static constexpr int kGateways = 3;
  GossipRoundsOfAll() {
    for (int g = 0; g < kGateways; ++g) start(g, g + 1);
  }
  void start(int g, int name) {
    auto& gateway = all_[static_cast<size_t>(g)];
    gateway = std::make_unique<Gateway>(name, kGateways, quick_rules());
    for (int other = 0; other < kGateways; ++other) {
      if (other != g) gateway->rounds.add(static_cast<uint32_t>(other), at_ms(ms_));
    }
  }
  Gateway& at(int g) { return *all_[static_cast<size_t>(g)]; }
  void round() {
    ms_ += 20;
    for (auto& gateway : all_) {
      if (gateway) gateway->rounds.collect(at_ms(ms_));
    }
    for (uint32_t g = 0; g < kGateways; ++g) {
      for (uint32_t other = 0; other < kGateways; ++other) {
        if (g != other && all_[g] != nullptr) deliver(g, other);
      }
    }
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) round();
  }
  void plan() {
    for (auto& gateway : all_) {
      if (gateway) gateway->router.plan(at_ms(ms_));
    }
  }
  bool all_know(int set, NodeIndex node) {
    return std::all_of(all_.begin(), all_.end(), [&](const auto& gateway) {
      return gateway->router.known().shadow.tokens(numbered_set(set), node) > 0;
    });
  }
  bool one_table() {
    return std::all_of(all_.begin(), all_.end(), [&](const auto& gateway) {
      return gateway->router.planning().version() == all_[0]->router.planning().version();
    });
  }

  std::array<std::unique_ptr<Gateway>, kGateways> all_;
  int64_t ms_ = 0;
  int messages_ = 0, tables_ = 0, samples_ = 0;

 private:
  void deliver(uint32_t g, uint32_t other) {
    GossipRounds& from = all_[g]->rounds;
    if (from.next_check(other) > at_ms(ms_) || !from.send_due(other, at_ms(ms_))) return;
    const GossipMessage message = from.begin(other, at_ms(ms_));
    if (all_[other] == nullptr) {
      from.failed(other, at_ms(ms_));
      return;
    }
    messages_ += 1;
    tables_ += message.table.empty() ? 0 : 1;
    samples_ += message.sample.empty() ? 0 : 1;
    ASSERT_TRUE(all_[other]->rounds.receive(message, at_ms(ms_)).ok());
    from.answered(other, all_[other]->rounds.answer(), at_ms(ms_));
  }
};

TEST_F(GossipRoundsOfAll, PlacementsAndLedgersReachAllWithinARound) {
  rounds(3);
  serve_at(at(0).router, key(1, -1), 2, at_ms(ms_));
  crowd(at(1).router, 3, 4, at_ms(ms_));
  round();
  EXPECT_TRUE(all_know(1, 2));
  EXPECT_EQ(at(0).router.loads().at(3).peers_requests, 4);
  EXPECT_EQ(at(2).router.loads().at(3).peers_requests, 4);
}

TEST_F(GossipRoundsOfAll, QuietFleetSendsOneMessageARefresh) {
  rounds(60);
  messages_ = 0;
  rounds(100);  // two refreshes, of 6 pairs each
  EXPECT_GE(messages_, 2 * 6);
  EXPECT_LE(messages_, 4 * 6) << "of the ledger and of the news";
}

TEST_F(GossipRoundsOfAll, GatewayThatBeginsAnewKnowsAllPlacementsSoon) {
  rounds(3);
  for (int set = 0; set < 8; ++set) serve_at(at(set % 3).router, key(set, -1), 1, at_ms(ms_));
  rounds(3);
  start(2, 7);
  rounds(3);
  for (int set = 0; set < 8; ++set) EXPECT_TRUE(all_know(set, 1)) << set;
}

TEST_F(GossipRoundsOfAll, GatewayThatWasAwayGetsAtOnceWhatItMissed) {
  rounds(3);
  all_[2].reset();
  rounds(50);  // pauses have grown
  for (int set = 0; set < 8; ++set) serve_at(at(0).router, key(set, -1), 1, at_ms(ms_));
  rounds(50);
  start(2, 8);
  rounds(4);
  for (int set = 0; set < 8; ++set) EXPECT_TRUE(all_know(set, 1)) << set;
}

TEST_F(GossipRoundsOfAll, OneTableIsPlannedFromTheSamplesOfAll) {
  rounds(3);
  for (int set = 0; set < 9; ++set) serve_at(at(set % 3).router, key(set, -1), 1, at_ms(ms_));
  plan();
  rounds(3);
  EXPECT_GE(samples_, 6) << "each one's, to each";
  ms_ += 5000;
  plan();
  rounds(3);
  EXPECT_TRUE(one_table());
  EXPECT_EQ(at(2).router.table()->sets().size(), 9u);
  const int sent = tables_;
  EXPECT_GE(sent, 2);
  rounds(100);
  EXPECT_EQ(tables_, sent) << "a table that all have is not sent again";
}

TEST(GossipRoundsTable, PeerThatDoesNotTakeTheTableGetsItOnceARefresh) {
  Gateway one(1, 2, quick_rules()), two(2, 2, quick_rules());
  one.rounds.add(0, at_ms(0));
  serve_at(one.router, key(1, -1), 1, at_ms(0));
  one.router.plan(at_ms(0));
  one.router.plan(at_ms(5000));
  const auto table_goes = [&](int64_t ms) {
    if (!one.rounds.send_due(0, at_ms(ms))) return false;
    const bool goes = !one.rounds.begin(0, at_ms(ms)).table.empty();
    one.rounds.answered(0, two.rounds.answer(), at_ms(ms));  // its old table still
    return goes;
  };
  EXPECT_FALSE(table_goes(5020)) << "its news are not known yet";
  EXPECT_TRUE(table_goes(5040));
  for (int64_t ms = 5060; ms < 6040; ms += 20) EXPECT_FALSE(table_goes(ms)) << ms;
  EXPECT_TRUE(table_goes(6040));
}

TEST(GossipRoundsTable, TableThatIsTooLargeIsLeftOutAndSaid) {
  GossipRules rules = quick_rules();
  rules.table_bytes_max = 8;
  Gateway one(1, 2, rules), two(2, 2, quick_rules());
  one.rounds.add(0, at_ms(0));
  serve_at(one.router, key(1, -1), 1, at_ms(0));
  one.router.plan(at_ms(0));
  one.router.plan(at_ms(5000));
  one.rounds.begin(0, at_ms(5020));
  one.rounds.answered(0, two.rounds.answer(), at_ms(5020));
  const GossipMessage message = one.rounds.begin(0, at_ms(5040));
  EXPECT_TRUE(message.table.empty());
  EXPECT_EQ(message.table_too_large, one.router.planning().table_message().size());
  EXPECT_GT(message.table_too_large, 8u);
}

}  // namespace
}  // namespace troupe::route
