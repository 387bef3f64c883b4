// Pins that gateways share in a store: several gateways and one store, its news in its order, each gateway as
// slow as chance has it.

#include "gateway/route/placement/pin_sync.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "gateway/route/placement/pin_registry.h"

namespace troupe::route {
namespace pin_sync_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Hash128 id_of(int number) {
  return hash_bytes("pin " + std::to_string(number));
}

constexpr PinChange kMade = PinChange::kMade, kRemoved = PinChange::kRemoved, kPlaced = PinChange::kPlaced,
                    kExpired = PinChange::kExpired;
using ApplyResult = PinSync::ApplyResult;

PinSync::Entry there(int number, int64_t revision, bool written_by_self = false) {
  return {id_of(number), revision, false, written_by_self};
}
PinSync::Entry gone(int number, int64_t revision) {
  return {id_of(number), revision, true, false};
}

// Begins the next write: of this pin, as this change, on this revision.
void expect_write(PinSync& sync, int number, PinChange change, int64_t revision) {
  const auto write = sync.begin_write();
  ASSERT_TRUE(write.has_value());
  EXPECT_EQ(write->id, id_of(number));
  EXPECT_EQ(write->change, change);
  EXPECT_EQ(write->revision, revision);
}

// One that has looked, and knows pin 1 at revision 5.
PinSync with_one_known() {
  PinSync sync;
  const PinSync::Entry one = there(1, 5);
  sync.begin_reconcile();
  sync.reconcile({"a", 5}, {&one, 1}, {});
  EXPECT_EQ(sync.observe(one), ApplyResult::kApplied);
  return sync;
}

TEST(PinSync, AChangeWaitsUntilItIsWritten) {
  PinSync sync;
  EXPECT_FALSE(sync.begin_write());
  sync.changed(id_of(1), kMade);
  sync.changed(id_of(2), kMade);
  sync.changed(id_of(1), kPlaced);
  expect_write(sync, 1, kMade, 0);
  sync.failed();
  expect_write(sync, 2, kMade, 0);  // one that fails holds nobody up
  sync.done(7);
  expect_write(sync, 1, kMade, 0);
  sync.changed(id_of(1), kPlaced);  // while it is written
  sync.done(8);
  expect_write(sync, 1, kPlaced, 8);
  sync.done(9);
  EXPECT_FALSE(sync.waits());
}

TEST(PinSync, WhatComesAndGoesWhileTheStoreIsAwayIsForgotten) {
  PinSync sync;
  sync.reconcile({"a", 1}, {}, {});
  for (int i = 0; i < 1000; ++i) {
    sync.changed(id_of(i), kMade);
    sync.changed(id_of(i), kRemoved);
  }
  EXPECT_FALSE(sync.waits());
  sync.observe(there(7, 5));
  sync.changed(id_of(7), kRemoved);
  expect_write(sync, 7, kRemoved, 5);  // the store has it
}

// A gateway that has just begun deletes a pin that another one wrote.
TEST(PinSync, RemovalsBeforeTheFirstLookAreWritten) {
  PinSync sync;
  sync.changed(id_of(1), kRemoved);
  const PinSync::Entry one = there(1, 5);
  EXPECT_TRUE(sync.reconcile({"a", 5}, {&one, 1}, {}).fetch.empty()) << "it is to go";
  expect_write(sync, 1, kRemoved, 5);
}

TEST(PinSync, NewsOfAPinThatAClientMadeAreOlderThanThat) {
  PinSync sync = with_one_known();
  EXPECT_EQ(sync.observe(there(1, 5)), ApplyResult::kStale) << "again";
  EXPECT_EQ(sync.observe(gone(1, 4)), ApplyResult::kStale);
  sync.changed(id_of(1), kMade);
  EXPECT_EQ(sync.observe(gone(1, 6)), ApplyResult::kRecorded);
  EXPECT_FALSE(sync.known(id_of(1)));
  expect_write(sync, 1, kMade, 0);
}

// Where a pin is held says nothing about whether it is to be.
TEST(PinSync, APlaceDoesNotBringBackWhatWasRemovedElsewhere) {
  PinSync sync = with_one_known();
  sync.changed(id_of(1), kPlaced);
  EXPECT_EQ(sync.observe(gone(1, 6)), ApplyResult::kApplied);
  EXPECT_FALSE(sync.waits());
  // The same before its news have come.
  PinSync late = with_one_known();
  late.changed(id_of(1), kPlaced);
  expect_write(late, 1, kPlaced, 5);
  EXPECT_TRUE(late.refused(gone(1, 9))) << "the registry is to drop it";
  EXPECT_FALSE(late.waits());
  EXPECT_EQ(late.observe(there(1, 6)), ApplyResult::kStale) << "news from before the removal";
  EXPECT_EQ(late.observe(gone(1, 8)), ApplyResult::kStale);
  EXPECT_EQ(late.observe(there(1, 10)), ApplyResult::kApplied) << "made anew";
}

TEST(PinSync, WhatAClientMadeIsWrittenOnTopOfTheirs) {
  PinSync sync = with_one_known();
  sync.changed(id_of(1), kMade);
  expect_write(sync, 1, kMade, 5);
  EXPECT_FALSE(sync.refused(there(1, 6)));
  expect_write(sync, 1, kMade, 6);
  EXPECT_FALSE(sync.refused(gone(1, 8)));
  expect_write(sync, 1, kMade, 0);
  sync.done(9);
  EXPECT_EQ(sync.observe(there(1, 9, true)), ApplyResult::kStale) << "its echo";
}

TEST(PinSync, ARemovalHoldsUnlessTheStoreWasAwayAndTheyMadeItAnew) {
  PinSync sync = with_one_known();
  sync.changed(id_of(1), kRemoved);
  expect_write(sync, 1, kRemoved, 5);
  EXPECT_FALSE(sync.refused(there(1, 6)));
  expect_write(sync, 1, kRemoved, 6);
  sync.failed();
  EXPECT_EQ(sync.observe(there(1, 7, true)), ApplyResult::kRecorded)
      << "an echo of what was written here before";
  expect_write(sync, 1, kRemoved, 7);
  EXPECT_TRUE(sync.refused(there(1, 8))) << "another gateway has made it last longer";
  EXPECT_FALSE(sync.waits());
}

TEST(PinSync, AnEchoDoesNotUndoTheWriteUnderWay) {
  PinSync sync = with_one_known();
  sync.changed(id_of(1), kMade);
  expect_write(sync, 1, kMade, 5);
  sync.changed(id_of(1), kRemoved);
  EXPECT_EQ(sync.observe(there(1, 6, true)), ApplyResult::kRecorded);
  sync.done(6);
  expect_write(sync, 1, kRemoved, 6);
  EXPECT_EQ(sync.observe(there(1, 6, true)), ApplyResult::kStale);
  sync.done(7);
  EXPECT_EQ(sync.observe(there(1, 6, true)), ApplyResult::kStale)
      << "an echo that is late does not bring it back";
  EXPECT_EQ(sync.observe(gone(1, 7)), ApplyResult::kStale);
}

TEST(PinSync, NewsAfterTheWriteUnderWayAreRead) {
  PinSync sync = with_one_known();
  sync.changed(id_of(1), kMade);
  expect_write(sync, 1, kMade, 5);
  EXPECT_EQ(sync.observe(there(1, 6, true)), ApplyResult::kRecorded);
  EXPECT_EQ(sync.observe(there(1, 8)), ApplyResult::kRecorded);
  sync.done(6);
  expect_write(sync, 1, kExpired, 6);
  EXPECT_TRUE(sync.refused(there(1, 8)));
}

TEST(PinSync, WhatEndsHereIsReadAndNotRemoved) {
  PinSync sync = with_one_known();
  sync.changed(id_of(1), kExpired);
  EXPECT_FALSE(sync.waits()) << "its lease ends it there";
  sync.changed(id_of(1), kMade);
  sync.observe(there(1, 6));  // another made it last longer
  sync.changed(id_of(1), kExpired);
  expect_write(sync, 1, kExpired, 6);
  EXPECT_TRUE(sync.refused(there(1, 6))) << "and so it does";
  // While its write is under way.
  sync.changed(id_of(1), kPlaced);
  expect_write(sync, 1, kPlaced, 6);
  sync.changed(id_of(1), kExpired);
  sync.failed();
  expect_write(sync, 1, kExpired, 6);
  EXPECT_TRUE(sync.refused(gone(1, 9)));
  EXPECT_FALSE(sync.known(id_of(1)));
}

TEST(PinSync, ACompleteLookShowsWhatIsNewAndWhatIsGone) {
  PinSync sync;
  sync.observe(there(1, 3));
  sync.observe(there(2, 4));
  sync.observe(there(3, 5));
  sync.observe(there(6, 6));
  sync.changed(id_of(3), kMade);
  sync.changed(id_of(5), kMade);
  sync.changed(id_of(6), kPlaced);
  const std::vector<PinSync::Entry> all{there(2, 4), there(4, 9)};
  const std::vector<Hash128> here{id_of(1), id_of(2), id_of(3), id_of(6)};
  expect_write(sync, 3, kMade, 5);
  sync.begin_reconcile();
  const PinSync::Reconciliation differences = sync.reconcile({"a", 10}, all, here);
  EXPECT_THAT(differences.fetch, ElementsAre(id_of(4)));
  EXPECT_THAT(differences.gone, ElementsAre(id_of(1), id_of(6))) << "3 is under way";
  sync.begin_reconcile();
  sync.done(12);
  const std::vector<Hash128> more{id_of(3), id_of(5)};
  EXPECT_THAT(sync.reconcile({"a", 11}, all, more).gone, IsEmpty())
      << "5 waits, 3 was written after the look";
  sync.begin_reconcile();
  EXPECT_THAT(sync.reconcile({"a", 12}, all, more).gone, ElementsAre(id_of(3)));
}

// Without news of its own: the store's name is another, or its revision has gone back.
TEST(PinSync, AnotherStoreGetsAllThatIsHere) {
  for (const PinSync::Store& other : {PinSync::Store{"b", 900}, PinSync::Store{"a", 2}}) {
    PinSync sync = with_one_known();
    sync.changed(id_of(3), kPlaced);
    expect_write(sync, 3, kPlaced, 0);
    EXPECT_EQ(sync.is_same(other), false);
    const std::vector<Hash128> here{id_of(1), id_of(2), id_of(3)};
    sync.begin_reconcile();
    const PinSync::Reconciliation differences = sync.reconcile(other, {}, here);
    EXPECT_TRUE(differences.replaced);
    EXPECT_THAT(differences.gone, IsEmpty());
    EXPECT_FALSE(sync.refused(gone(3, other.revision))) << "it says nothing of what another store had";
    for (const int number : {1, 2, 3}) {
      expect_write(sync, number, kPlaced, 0);
      sync.done(other.revision + number);
    }
    EXPECT_FALSE(sync.waits());
  }
}

TEST(PinSync, AnotherStoreThatHasAPinKeepsItsOwn) {
  PinSync sync = with_one_known();
  const std::vector<Hash128> here{id_of(1)};
  const PinSync::Entry one = there(1, 3);
  sync.begin_reconcile();
  EXPECT_THAT(sync.reconcile({"b", 3}, {&one, 1}, here).fetch, ElementsAre(id_of(1)));
  EXPECT_EQ(sync.observe(one), ApplyResult::kApplied);
  EXPECT_FALSE(sync.waits());
}

// A store, and gateways with a registry each. Time is a count of steps; pins end in the store to the step, at
// a gateway when it looks.
class Fleet {
 public:
  Fleet(int gateways, uint64_t seed) : random_(seed) {
    for (int i = 0; i < gateways; ++i) sides_.push_back(std::make_unique<Side>(i));
  }
  void step() {
    now_ += std::chrono::seconds(1);
    end_leases();
    Side& side = *sides_[random_() % sides_.size()];
    switch (random_() % 10) {
      case 0:
        return put(side);
      case 1:
        return side.registry.erase(any());
      case 2:
      case 3:
        return write(side);
      case 4:
        return random_() % 10 == 0 ? reconcile(side) : hear(side);
      case 5:
        side.registry.placed(any(), {});
        return;
      case 6:
        return side.registry.expire(now_);
      default:
        return hear(side);
    }
  }
  void settle() {
    end_leases();
    for (int round = 0; round < 4; ++round) {
      for (auto& side : sides_) {
        side->registry.expire(now_);
        for (int i = 0; i < 1000 && side->sync.waits(); ++i) write(*side);
        EXPECT_FALSE(side->sync.waits());
      }
      for (auto& side : sides_) {
        while (side->heard < log_.size()) hear(*side);
      }
    }
  }
  // The store first, then each side: models by name.
  std::vector<std::map<std::string, std::string>> all() const {
    std::vector<std::map<std::string, std::string>> held(1);
    for (const auto& [id, kept] : store_) held[0][id.hex()] = kept.pin.model;
    for (const auto& side : sides_) {
      auto& its = held.emplace_back();
      for (const Pin* pin : side->registry.of("")) its[pin->id.hex()] = pin->model;
    }
    return held;
  }

 private:
  static constexpr int kPins = 5;
  struct Side {
    explicit Side(int at) : name(at) {
      registry.on_change = [this](const Hash128& id, PinChange change) { sync.changed(id, change); };
    }
    PinRegistry registry{PinOptions{}};
    PinSync sync;
    int name;
    size_t heard = 0;  // of the log
  };
  struct Kept {
    Pin pin;
    int64_t revision = 0;
    int writer = 0;
  };
  struct News {
    Hash128 id;
    int64_t revision = 0;
    std::optional<Kept> kept;  // nullopt: deleted
  };
  Hash128 any() { return id_of(static_cast<int>(random_() % kPins)); }
  void put(Side& side) {
    Pin pin;
    pin.id = any();
    pin.model = "m" + std::to_string(++made_);
    pin.shared = true;
    pin.expires = true;
    pin.until = now_ + std::chrono::seconds(20 + random_() % 200);
    side.registry.put(std::move(pin));
  }
  void end_leases() {
    for (auto at = store_.begin(); at != store_.end();) {
      if (at->second.pin.until > now_) {
        ++at;
        continue;
      }
      log_.push_back({at->first, ++revision_, std::nullopt});
      at = store_.erase(at);
    }
  }
  PinSync::Entry entry_of(const Side& side, const News& news) const {
    return {news.id, news.revision, !news.kept, news.kept && news.kept->writer == side.name};
  }
  // The store's answer for the pin now.
  News now_of(const Hash128& id) const {
    const auto found = store_.find(id);
    if (found == store_.end()) return {id, revision_, std::nullopt};
    return {id, found->second.revision, found->second};
  }
  void write(Side& side) {
    const auto write = side.sync.begin_write();
    if (!write) return;
    if (random_() % 4 == 0) return side.sync.failed();
    const Pin* pin = side.registry.find(write->id);
    const News now = now_of(write->id);
    const bool reads = write->change == kExpired || (write->change != kRemoved && pin == nullptr);
    const bool done = !reads && write->revision == (now.kept ? now.revision : 0);
    if (done && write->change != kRemoved) {
      store_[write->id] = {*pin, ++revision_, side.name};
      log_.push_back({write->id, revision_, store_[write->id]});
    } else if (done && store_.erase(write->id) > 0) {
      log_.push_back({write->id, ++revision_, std::nullopt});
    }
    const int64_t answered = revision_;
    // (News may come before the answer; others write before it; it may be lost.)
    if (random_() % 2 == 0) hear(side);
    if (random_() % 8 == 0) return side.sync.failed();
    if (done) return side.sync.done(answered);
    if (side.sync.refused(entry_of(side, now))) adopt(side, now);
  }
  static void adopt(Side& side, const News& news) {
    if (!news.kept) return side.registry.drop(news.id);
    side.registry.adopt(news.kept->pin);
  }
  void take(Side& side, const News& news) const {
    if (side.sync.observe(entry_of(side, news)) == ApplyResult::kApplied) adopt(side, news);
  }
  void hear(Side& side) const {
    if (side.heard == log_.size()) return;
    const News& news = log_[side.heard++];
    take(side, news);
    side.sync.passed(news.revision);
  }
  // The watch broke: all is read anew.
  void reconcile(Side& side) const {
    std::vector<PinSync::Entry> all;
    for (const auto& [id, kept] : store_) all.push_back({id, kept.revision, false, false});
    const std::vector<Hash128> here = side.registry.shared();
    side.sync.begin_reconcile();
    const PinSync::Reconciliation differences = side.sync.reconcile({"a", revision_}, all, here);
    for (const Hash128& id : differences.gone) side.registry.drop(id);
    for (const Hash128& id : differences.fetch) take(side, now_of(id));
    side.heard = log_.size();
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::map<Hash128, Kept> store_;
  std::vector<News> log_;
  TimePoint now_{};
  int64_t revision_ = 1;
  int made_ = 0;
};

TEST(PinSync, GatewaysAgreeWithTheStoreOnceAllIsObserved) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Fleet fleet(3, seed);
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 200; ++i) fleet.step();
      fleet.settle();
      const auto all = fleet.all();
      for (size_t i = 1; i < all.size(); ++i) ASSERT_EQ(all[i], all[0]) << "seed " << seed;
    }
  }
}

}  // namespace pin_sync_test
}  // namespace troupe::route
