// Pins that gateways share in a store: several gateways and one store, its news in its order, each gateway as
// slow as chance has it.

#include "gateway/route/placement/pin_sync.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "gateway/route/placement/pin_book.h"

namespace troupe::route {
namespace pin_sync_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Hash128 id_of(int number) {
  return hash_bytes("pin " + std::to_string(number));
}

TEST(PinSync, AChangeWaitsUntilItIsWritten) {
  PinSync sync;
  EXPECT_EQ(sync.begin_write(), std::nullopt);
  sync.changed(id_of(1), true);
  sync.changed(id_of(2), true);
  sync.changed(id_of(1), true);
  EXPECT_EQ(sync.begin_write(), id_of(1));
  sync.end_write(false);
  EXPECT_EQ(sync.begin_write(), id_of(2)) << "one that fails holds nobody up";
  sync.end_write(true);
  EXPECT_EQ(sync.begin_write(), id_of(1));
  sync.changed(id_of(1), true);  // while it is written
  sync.end_write(true);
  EXPECT_EQ(sync.begin_write(), id_of(1));
  sync.end_write(true);
  EXPECT_FALSE(sync.waits());
}

TEST(PinSync, WhatComesAndGoesWhileTheStoreIsAwayIsForgotten) {
  PinSync sync;
  sync.look(1, {}, {});
  for (int i = 0; i < 1000; ++i) {
    sync.changed(id_of(i), true);
    sync.changed(id_of(i), false);
  }
  EXPECT_FALSE(sync.waits());
  sync.heard({id_of(7), 5, false});
  sync.changed(id_of(7), false);
  EXPECT_EQ(sync.begin_write(), id_of(7)) << "the store has it";
}

// A gateway that has just begun deletes a pin that another one wrote.
TEST(PinSync, RemovalsBeforeTheFirstLookAreWritten) {
  PinSync sync;
  sync.changed(id_of(1), false);
  const PinSync::Entry there{id_of(1), 5, false};
  EXPECT_TRUE(sync.look(5, {&there, 1}, {}).fetch.empty()) << "it is to go";
  EXPECT_EQ(sync.begin_write(), id_of(1));
}

TEST(PinSync, NewsOfAPinThatWaitsAreOlderThanWhatWaits) {
  PinSync sync;
  EXPECT_TRUE(sync.heard({id_of(1), 5, false}));
  EXPECT_FALSE(sync.heard({id_of(1), 5, false})) << "again";
  EXPECT_FALSE(sync.heard({id_of(1), 4, true})) << "older";
  sync.changed(id_of(1), true);
  EXPECT_FALSE(sync.heard({id_of(1), 6, true}));
  EXPECT_FALSE(sync.known(id_of(1)));
  ASSERT_EQ(sync.begin_write(), id_of(1));
  EXPECT_TRUE(sync.heard({id_of(1), 7, false})) << "it may be our own, or one after it";
}

TEST(PinSync, ACompleteLookTellsWhatIsNewAndWhatIsGone) {
  PinSync sync;
  sync.heard({id_of(1), 3, false});
  sync.heard({id_of(2), 4, false});
  sync.heard({id_of(3), 5, false});
  sync.changed(id_of(3), true);
  const std::vector<PinSync::Entry> all{{id_of(2), 4}, {id_of(4), 9}};
  const std::vector<Hash128> here{id_of(1), id_of(2), id_of(3)};
  sync.changed(id_of(5), true);
  ASSERT_EQ(sync.begin_write(), id_of(3));
  const PinSync::Look look = sync.look(10, all, here);
  EXPECT_THAT(look.fetch, ElementsAre(id_of(4)));
  EXPECT_THAT(look.gone, ElementsAre(id_of(1))) << "3 is under way";
  sync.end_write(true);
  const std::vector<Hash128> more{id_of(3), id_of(5)};
  EXPECT_THAT(sync.look(11, all, more).gone, ElementsAre(id_of(3))) << "5 waits";
}

TEST(PinSync, AnotherStoreGetsAllThatIsHere) {
  PinSync sync;
  sync.heard({id_of(1), 300, false});
  const std::vector<Hash128> here{id_of(1), id_of(2)};
  const PinSync::Look look = sync.look(2, {}, here);
  EXPECT_THAT(look.gone, IsEmpty());
  EXPECT_EQ(sync.begin_write(), id_of(1));
  sync.end_write(true);
  EXPECT_EQ(sync.begin_write(), id_of(2));
}

// A store, and gateways with a book each.
class Fleet {
 public:
  Fleet(int gateways, uint64_t seed) : random_(seed) {
    for (int i = 0; i < gateways; ++i) sides_.push_back(std::make_unique<Side>());
  }
  void step() {
    const size_t at = random_() % sides_.size();
    Side& side = *sides_[at];
    switch (random_() % 8) {
      case 0:
        return put(side);
      case 1:
        return side.book.erase(id_of(static_cast<int>(random_() % kPins)));
      case 2:
      case 3:
        return write(side);
      case 4:
        return random_() % 10 == 0 ? look(side) : hear(side);
      default:
        return hear(side);
    }
  }
  void settle() {
    for (int round = 0; round < 3; ++round) {
      for (auto& side : sides_) {
        while (side->sync.waits()) write(*side);
      }
      for (auto& side : sides_) {
        while (side->heard < log_.size()) hear(*side);
      }
    }
  }
  // The store first, then each side: models by name.
  std::vector<std::map<std::string, std::string>> all() const {
    std::vector<std::map<std::string, std::string>> held(1);
    for (const auto& [id, value] : store_) held[0][id.hex()] = value.first;
    for (const auto& side : sides_) {
      auto& its = held.emplace_back();
      for (const Pin* pin : side->book.of("")) its[pin->id.hex()] = pin->model;
    }
    return held;
  }

 private:
  static constexpr int kPins = 5;
  struct Side {
    Side() {
      book.on_change = [this](const Hash128& id) { sync.changed(id, book.find(id) != nullptr); };
    }
    PinBook book{PinOptions{}};
    PinSync sync;
    size_t heard = 0;  // of the log
  };
  struct News {
    PinSync::Entry entry;
    std::string model;
  };
  void put(Side& side) {
    Pin pin;
    pin.id = id_of(static_cast<int>(random_() % kPins));
    pin.model = "m" + std::to_string(++made_);
    pin.shared = true;
    side.book.put(std::move(pin));
  }
  void write(Side& side) {
    const auto id = side.sync.begin_write();
    if (!id) return;
    if (random_() % 4 == 0) return side.sync.end_write(false);
    const Pin* pin = side.book.find(*id);
    if (pin != nullptr) {
      store_[*id] = {pin->model, ++revision_};
      log_.push_back({{*id, revision_, false}, pin->model});
    } else if (store_.erase(*id) > 0) {
      log_.push_back({{*id, ++revision_, true}, ""});
    }
    // (News may come before the answer.)
    if (random_() % 2 == 0) hear(side);
    side.sync.end_write(random_() % 8 != 0);  // an answer that is lost: it is written again
  }
  static void take(Side& side, const News& news) {
    if (!side.sync.heard(news.entry)) return;
    if (news.entry.deleted) return side.book.drop(news.entry.id);
    Pin pin;
    pin.id = news.entry.id;
    pin.model = news.model;
    pin.shared = true;
    side.book.adopt(std::move(pin));
  }
  void hear(Side& side) const {
    if (side.heard < log_.size()) take(side, log_[side.heard++]);
  }
  // The watch broke: all is read anew.
  void look(Side& side) const {
    std::vector<PinSync::Entry> all;
    for (const auto& [id, value] : store_) all.push_back({id, value.second, false});
    const std::vector<Hash128> here = side.book.shared();
    const PinSync::Look look = side.sync.look(revision_, all, here);
    for (const Hash128& id : look.gone) side.book.drop(id);
    for (const Hash128& id : look.fetch) take(side, {{id, store_.at(id).second, false}, store_.at(id).first});
    side.heard = log_.size();
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::map<Hash128, std::pair<std::string, int64_t>> store_;
  std::vector<News> log_;
  int64_t revision_ = 1;
  int made_ = 0;
};

TEST(PinSync, GatewaysAgreeWithTheStoreOnceAllIsHeard) {
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
