// A gateway's questions to the store, without the store: their order, and what follows from the answers.
// (Faults between the two: tests/gateway/faults/shared_world.h.)

#include "gateway/route/leader_sync.h"

#include <gtest/gtest.h>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace {

using namespace testing_cluster;
using Kind = StoreCommand::Kind;

class SharedRounds : public ::testing::Test {
 protected:
  static RouterOptions options(Mode mode, int name) {
    RouterOptions router;
    router.shared_table = true;
    router.affinity.mode = mode;
    router.name = hash_bytes("gateway " + std::to_string(name));
    return router;
  }
  // Keeps the lease and puts the loads: up to the question for the gateways.
  static StoreCommand up_to_observe(LeaderSync& round, TimePoint now) {
    round.begin();
    EXPECT_EQ(round.next(now).kind, Kind::kKeepLease);
    round.lease_kept(7, now + std::chrono::seconds(5));
    StoreCommand ask = round.next(now);
    if (ask.kind != Kind::kPutLoads) return ask;
    EXPECT_EQ(ask.lease, 7);
    round.answered({}, now);
    return round.next(now);
  }
  static StoreAnswer at(int64_t revision) {
    StoreAnswer answer;
    answer.revision = revision;
    answer.done = true;
    return answer;
  }
  static StoreUpdate sees_nothing(LeaderSync& round) { return round.saw_all(5, 0, nullptr, nullptr); }
  std::string table_of(Mode mode) {
    Router other = router_over(view_, options(mode, 9));
    serve_at(other, key(1, -1), 0, at_ms(0));
    other.plan(at_ms(0));
    return other.planning().draft_table(at_ms(0), false);
  }

  std::shared_ptr<const ClusterView> view_ = cluster(4);
  Router router_ = router_over(view_, options(Mode::kExact, 1));
  LeaderSync round_{LeaderSync::Options{}, router_};
};

// After a fault of the store every gateway's lease is lost, and one gateway is the first to get another.
TEST_F(SharedRounds, GatewayThatLostItsLeaseCountsTheOthersUntilTheyCouldReturn) {
  const auto hears = [this](int64_t lease, int gateways, TimePoint now) {
    round_.begin();
    EXPECT_EQ(round_.next(now).kind, Kind::kKeepLease);
    round_.lease_kept(lease, now + std::chrono::seconds(5));
    StoreCommand ask = round_.next(now);
    if (ask.kind == Kind::kPutLoads) {
      round_.answered({}, now);
      ask = round_.next(now);
    }
    ASSERT_EQ(ask.kind, Kind::kObserve);
    StoreAnswer answer = at(6);
    for (int i = 0; i < gateways; ++i)
      answer.loads.emplace_back(hash_bytes("gateway " + std::to_string(i)).hex(), "");
    round_.answered(answer, now);
    round_.failed();
  };
  const auto place = [this](int gateways) {
    GatewayShard out{0, gateways};
    for (int i = 0; i < gateways; ++i)
      out.index += hash_bytes("gateway " + std::to_string(i)) < router_.options().name ? 1 : 0;
    return out;
  };
  sees_nothing(round_);
  hears(7, 1, at_ms(0));
  EXPECT_EQ(round_.place(), place(1)) << "nobody was there before";
  hears(7, 3, at_ms(1000));
  hears(7, 2, at_ms(2000));
  EXPECT_EQ(round_.place(), place(2)) << "one has gone";
  hears(8, 1, at_ms(9000));
  EXPECT_EQ(round_.place(), place(2));
  hears(8, 1, at_ms(13'999));
  EXPECT_EQ(round_.place(), place(2));
  hears(8, 1, at_ms(14'000));
  EXPECT_EQ(round_.place(), place(1));
}

TEST_F(SharedRounds, GatewayWithoutALeaderCampaignsLooksAndWrites) {
  serve_at(router_, key(1, -1), 0, at_ms(0));
  router_.plan(at_ms(0));
  sees_nothing(round_);
  const StoreCommand observe = up_to_observe(round_, at_ms(0));
  EXPECT_EQ(observe.kind, Kind::kObserve);
  EXPECT_TRUE(observe.values) << "who may lead needs all loads";
  round_.answered(at(6), at_ms(0));
  const StoreCommand campaign = round_.next(at_ms(0));
  EXPECT_EQ(campaign.kind, Kind::kCampaign);
  EXPECT_EQ(campaign.leader_created, 0);
  EXPECT_EQ(campaign.lease, 7);
  round_.answered(at(8), at_ms(0));
  EXPECT_EQ(round_.next(at_ms(0)).kind, Kind::kLook) << "plans from what is there, whatever was seen before";
  StoreAnswer look = at(8);
  look.leader = StoreKey{router_.options().name.hex(), 8, 8};
  round_.answered(look, at_ms(0));
  const StoreCommand write = round_.next(at_ms(0));
  EXPECT_EQ(write.kind, Kind::kWrite);
  EXPECT_EQ(write.leader_created, 8);
  EXPECT_EQ(write.table_modified, 0);
  const StoreUpdate update = round_.answered(at(9), at_ms(0));
  EXPECT_TRUE(update.written);
  EXPECT_EQ(router_.planning().version().epoch, 1u);
  EXPECT_EQ(round_.next(at_ms(0)).kind, Kind::kNothing);
  up_to_observe(round_, at_ms(1000));
  StoreAnswer heard = at(10);
  heard.leader = StoreKey{router_.options().name.hex(), 8, 8};
  heard.table = StoreKey{"", 9, 9};
  round_.answered(heard, at_ms(1000));
  EXPECT_EQ(round_.next(at_ms(1000)).kind, Kind::kNothing) << "the next table is due in a tick";
}

// Somebody wrote it by hand, or put it back from a copy: no gateway's end would delete it.
TEST_F(SharedRounds, LeadersKeyWithoutALeaseIsRemoved) {
  serve_at(router_, key(1, -1), 0, at_ms(0));
  router_.plan(at_ms(0));
  const StoreKey nobody{"somebody", 12, 13, false};
  round_.saw_all(20, 0, &nobody, nullptr);
  EXPECT_EQ(round_.shared().leader(), "");
  const StoreCommand observe = up_to_observe(round_, at_ms(0));
  ASSERT_EQ(observe.kind, Kind::kObserve);
  StoreAnswer heard = at(21);
  heard.leader = nobody;
  round_.answered(heard, at_ms(0));
  EXPECT_TRUE(round_.wants_round(at_ms(0)));
  const StoreCommand removal = round_.next(at_ms(0));
  ASSERT_EQ(removal.kind, Kind::kResign);
  EXPECT_EQ(removal.leader_created, 12) << "a gateway that has made the key since keeps it";
  const StoreUpdate update = round_.answered(at(22), at_ms(0));
  EXPECT_TRUE(update.removed_leader);
  EXPECT_FALSE(update.resigned);
  up_to_observe(round_, at_ms(1));
  round_.answered(at(23), at_ms(1));
  EXPECT_EQ(round_.next(at_ms(1)).kind, Kind::kCampaign);
}

// The watch stays open but delivers nothing any more.
TEST_F(SharedRounds, RoundSeesChangesMissedByTheWatch) {
  sees_nothing(round_);
  up_to_observe(round_, at_ms(0));
  StoreAnswer heard = at(20);
  heard.leader = StoreKey{"somebody", 12, 12};
  heard.table = StoreKey{"", 15, 18};
  round_.answered(heard, at_ms(0));
  EXPECT_EQ(round_.shared().leader(), "somebody");
  ASSERT_EQ(round_.next(at_ms(0)).kind, Kind::kLook);
  heard.table->value = table_of(Mode::kExact);
  EXPECT_TRUE(round_.answered(heard, at_ms(0)).adopted);
  EXPECT_EQ(router_.planning().version().epoch, 1u);
  EXPECT_EQ(round_.next(at_ms(0)).kind, Kind::kNothing);
}

TEST_F(SharedRounds, TableOfAnotherKindIsReportedAndIgnored) {
  const StoreKey strict{table_of(Mode::kStrict), 4, 4};
  ASSERT_FALSE(strict.value.empty());
  const StoreUpdate update = round_.saw_all(5, 0, nullptr, &strict);
  EXPECT_TRUE(update.other_kind);
  EXPECT_FALSE(update.adopted);
  EXPECT_TRUE(update.table.ok());
  EXPECT_EQ(router_.planning().version().epoch, 0u);
  const StoreKey broken{"no table", 4, 6};
  EXPECT_FALSE(round_.saw_table(&broken, 6).table.ok());
}

// A gateway without state wrote the first table of a store that was begun anew.
TEST_F(SharedRounds, LeaderWritesALaterTableThanTheStoreHas) {
  const std::string first = table_of(Mode::kExact);
  serve_at(router_, key(1, -1), 0, at_ms(0));
  serve_at(router_, key(2, -1), 0, at_ms(0));
  router_.plan(at_ms(0));
  const StoreKey known{first, 50, 50};
  round_.saw_all(50, 0, nullptr, &known);
  const StoreKey second{router_.planning().draft_table(at_ms(0), true), 50, 60};
  EXPECT_TRUE(round_.saw_table(&second, 60).adopted);
  EXPECT_EQ(router_.planning().version().epoch, 2u);
  const StoreKey me{router_.options().name.hex(), 3, 3}, older{first, 4, 4};
  round_.saw_all(5, 60, &me, &older);
  EXPECT_EQ(router_.planning().version().epoch, 2u);
  up_to_observe(round_, at_ms(0));
  StoreAnswer heard = at(6);
  heard.leader = me;
  heard.table = StoreKey{"", 4, 4};
  round_.answered(heard, at_ms(0));
  const StoreCommand write = round_.next(at_ms(0));
  ASSERT_EQ(write.kind, Kind::kWrite);
  EXPECT_EQ(write.value, second.value);
  EXPECT_EQ(write.table_modified, 4);
}

TEST_F(SharedRounds, LoadsWithAnUnknownOutcomeAreSentAgain) {
  sees_nothing(round_);
  round_.begin();
  round_.next(at_ms(0));
  round_.lease_kept(7, at_ms(5000));
  ASSERT_EQ(round_.next(at_ms(0)).kind, Kind::kPutLoads);
  round_.failed();
  EXPECT_EQ(round_.next(at_ms(0)).kind, Kind::kNothing);
  round_.begin();
  round_.next(at_ms(1));
  round_.lease_kept(7, at_ms(5001));
  EXPECT_EQ(round_.next(at_ms(1)).kind, Kind::kPutLoads);
  round_.answered({}, at_ms(1));
  EXPECT_EQ(up_to_observe(round_, at_ms(2)).kind, Kind::kObserve) << "and not a third time";
}

}  // namespace
}  // namespace troupe::route
