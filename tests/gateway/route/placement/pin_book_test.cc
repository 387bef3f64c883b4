// Owners of pins, how many one may have, and which have to be computed anew.

#include "gateway/route/placement/pin_book.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace pin_book_test {

using namespace testing_cluster;

// Hundred bytes, the same at each call.
const std::string& body_of(int number) {
  static std::map<int, std::string> bodies;
  std::string& body = bodies[number];
  if (body.empty()) body = std::to_string(number) + std::string(100 - std::to_string(number).size(), 'x');
  return body;
}

Pin pin_of(const std::string& owner, int number, int64_t tokens = 1000) {
  Pin pin;
  pin.prefix = hash_bytes("prefix " + std::to_string(number));
  pin.id = Pin::id_of(pin.prefix, owner);
  pin.owner = owner;
  pin.model = "demo";
  pin.tokens = tokens;
  pin.body = body_of(number);
  pin.key.set = numbered_set(number);
  pin.places.push_back({0, 1});
  return pin;
}

PinBook::Wish wish_of(std::string_view owner, int number, int64_t tokens = 1000) {
  PinBook::Wish wish;
  wish.owner = owner;
  wish.model = "demo";
  wish.body = body_of(number);
  wish.tokens = tokens;
  wish.kv_tokens = 40'000;
  return wish;
}

TEST(PinBook, OneOwnerLeavesRoomForOthers) {
  PinBook book(PinOptions{});
  int kept = 0;
  while (book.refusal(wish_of("greedy", kept)).empty()) book.put(pin_of("greedy", kept++));
  EXPECT_EQ(kept, 5) << "an eighth of 40,000";
  EXPECT_NE(book.refusal(wish_of("greedy", 99)).find("pins.kv_share"), std::string::npos);
  EXPECT_EQ(book.refusal(wish_of("greedy", 3)), "") << "again: it takes no more";
  EXPECT_EQ(book.refusal(wish_of("other", 99)), "");
  PinBook::Wish unknown = wish_of("greedy", 99);
  unknown.kv_tokens = 0;
  EXPECT_EQ(book.refusal(unknown), "") << "no worker tells its memory";
}

TEST(PinBook, OneOwnersPinsAreBoundedInNumber) {
  PinBook book(PinOptions{});
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(book.refusal(wish_of("many", i, 1)), "");
    book.put(pin_of("many", i, 1));
  }
  EXPECT_NE(book.refusal(wish_of("many", 64, 1)).find("pins.per_owner"), std::string::npos);
  book.erase(pin_of("many", 7).id);
  EXPECT_EQ(book.refusal(wish_of("many", 64, 1)), "");
}

// Prefixes of one set, or of none, are as many as a client likes.
TEST(PinBook, PrefixesOfOneSetCountEachByItself) {
  PinBook book(PinOptions{});
  for (int i = 0; i < 5; ++i) {
    Pin pin = pin_of("greedy", i);
    pin.key.set = i < 2 ? Hash128() : numbered_set(1);
    EXPECT_EQ(book.refusal(wish_of("greedy", i)), "");
    book.put(pin);
  }
  EXPECT_NE(book.refusal(wish_of("greedy", 5)), "");
}

// Workers compute for seconds before a pin is kept.
TEST(PinBook, WhatIsOnItsWayCounts) {
  PinBook book(PinOptions{});
  std::vector<PinBook::Reservation> on_their_way;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(book.refusal(wish_of("greedy", i)), "");
    on_their_way.emplace_back(book, wish_of("greedy", i));
  }
  EXPECT_NE(book.refusal(wish_of("greedy", 5)), "");
  EXPECT_EQ(book.refusal(wish_of("other", 5)), "");
  on_their_way.pop_back();
  EXPECT_EQ(book.refusal(wish_of("greedy", 5)), "");
  on_their_way.clear();
  EXPECT_EQ(book.text_bytes(), 0u);
}

TEST(PinBook, OneOwnersRequestsHaveAPartOfTheRoomForTexts) {
  PinOptions options;
  options.text_bytes = 1000;
  PinBook book(options);
  book.put(pin_of("a", 1, 1));
  book.put(pin_of("a", 2, 1));
  EXPECT_NE(book.refusal(wish_of("a", 3, 1)).find("pins.text_bytes"), std::string::npos);
  EXPECT_EQ(book.refusal(wish_of("b", 3, 1)), "");
}

TEST(PinBook, OwnersOfOnePrefixDoNotUndoEachOthers) {
  PinBook book(PinOptions{});
  const Pin of_a = pin_of("a", 1), of_b = pin_of("b", 1);
  ASSERT_EQ(of_a.prefix, of_b.prefix);
  book.put(of_a);
  EXPECT_FALSE(book.is_of_another(of_a.prefix, "a"));
  EXPECT_TRUE(book.is_of_another(of_a.prefix, "b"));
  book.put(of_b);
  book.erase(of_b.id);
  EXPECT_NE(book.find(of_a.id), nullptr);
  EXPECT_FALSE(book.placed(of_b.id, {2, 1})) << "it was deleted meanwhile";
  book.unplace(of_a.prefix);
  const auto holds = [](const Pin::Place&) { return true; };
  EXPECT_EQ(book.next_lost(holds), book.find(of_a.id)) << "workers unpinned it for b";
}

// A node keeps a prefix until the end that it was told last, whoever told it.
TEST(PinBook, ANodeHoldsAPrefixUntilTheEndThatItGotLast) {
  PinBook book(PinOptions{});
  const Pin of_a = pin_of("a", 1);
  book.put(of_a);
  book.told_end(of_a.prefix, {0, 1, at_ms(1000)});
  book.told_end(of_a.prefix, {0, 2, at_ms(9000)});
  book.told_end(of_a.prefix, {5, 1, at_ms(9000)});
  const auto holds_at = [](TimePoint now) {
    return [now](const Pin::Place& place) { return now < place.ends; };
  };
  EXPECT_EQ(book.next_lost(holds_at(at_ms(999))), nullptr);
  EXPECT_NE(book.next_lost(holds_at(at_ms(1000))), nullptr);
}

TEST(PinBook, EachOwnerSeesItsOwn) {
  PinBook book(PinOptions{});
  for (int i = 0; i < 6; ++i) book.put(pin_of(i % 2 == 0 ? "a" : "b", i));
  ASSERT_EQ(book.of("a").size(), 3u);
  for (const Pin* pin : book.of("a")) EXPECT_EQ(pin->owner, "a");
  EXPECT_TRUE(book.of("c").empty());
}

TEST(PinBook, PinEndsWithItsTime) {
  PinBook book(PinOptions{});
  Pin ends = pin_of("a", 1);
  ends.expires = true;
  ends.until = at_ms(1000);
  book.put(ends);
  book.put(pin_of("a", 2));
  book.expire(at_ms(999));
  EXPECT_EQ(book.size(), 2u);
  book.expire(at_ms(1000));
  EXPECT_EQ(book.size(), 1u);
  EXPECT_EQ(book.find(ends.id), nullptr);
}

// A worker died, another began again with an empty cache: every pin of theirs is computed, in turn.
TEST(PinBook, WhatNoNodeHoldsIsComputedAnewInTurn) {
  PinBook book(PinOptions{});
  for (int i = 0; i < 9; ++i) {
    Pin pin = pin_of("a", i);
    pin.places = {{static_cast<NodeIndex>(i % 3), 1}};
    if (i == 0) pin.places.push_back({2, 1});
    book.put(pin);
  }
  std::map<NodeIndex, uint32_t> lives{{0, 2}, {2, 1}};  // 1 is dead
  const auto holds = [&](const Pin::Place& place) {
    const auto its = lives.find(place.node);
    return its != lives.end() && its->second == place.life;
  };
  std::map<Hash128, int> computed;
  while (const Pin* lost = book.next_lost(holds)) {
    computed[lost->id] += 1;
    book.placed(lost->id, {2, 1});
    ASSERT_LT(computed.size(), 9u);
  }
  EXPECT_EQ(computed.size(), 5u) << "those of 0 and 1 but the one that 2 holds, too";
  for (const auto& [id, times] : computed) EXPECT_EQ(times, 1);
  // Where none can be computed all have their turn.
  lives.clear();
  for (int i = 0; i < 18; ++i) computed[book.next_lost(holds)->id] += 1;
  EXPECT_EQ(computed.size(), 9u);
}

// Another gateway wrote where they are held: who is there, in the same life of its cache, holds them.
TEST(PinBook, WhatAnotherGatewayKnewIsFoundAgain) {
  PinBook book(PinOptions{});
  for (int i = 0; i < 3; ++i) {
    Pin pin = pin_of("a", i);
    pin.places.clear();
    pin.claims = {{"w" + std::to_string(i), "life"}};
    book.adopt(pin);
  }
  book.settle_claims([](const Pin::Claim& claim) {
    return claim.node == "w1" ? Pin::Place{1, 4} : Pin::Place{};
  });
  const auto holds = [](const Pin::Place& place) { return place.node == 1 && place.life == 4; };
  std::map<Hash128, int> lost;
  for (int i = 0; i < 6; ++i) lost[book.next_lost(holds)->id] += 1;
  EXPECT_EQ(lost.size(), 2u);
  EXPECT_FALSE(lost.contains(pin_of("a", 1).id));
  const auto mine = [](const Pin& pin) { return pin.id == pin_of("a", 2).id; };
  EXPECT_EQ(book.next_lost(holds, mine)->id, pin_of("a", 2).id) << "the other one is another gateway's";
  book.placed(pin_of("a", 2).id, {1, 4});
  EXPECT_EQ(book.next_lost(holds, mine), nullptr);
}

TEST(PinBook, ReportsWhatIsChangedHereAndNotWhatIsAdopted) {
  PinBook book(PinOptions{});
  std::map<Hash128, int> told;
  std::vector<PinChange> changes;
  book.on_change = [&](const Hash128& id, PinChange change) {
    told[id] += 1;
    changes.push_back(change);
  };
  Pin pin = pin_of("a", 1);
  pin.shared = true;
  Pin huge = pin;
  huge.body = std::string(PinOptions().text_bytes + 1, 'x');
  EXPECT_FALSE(book.put(huge));
  EXPECT_TRUE(told.empty()) << "others keep theirs";
  book.put(pin);
  EXPECT_EQ(told[pin.id], 1);
  EXPECT_EQ(book.shared(), std::vector{pin.id});
  book.placed(pin.id, {2, 1});
  EXPECT_EQ(told[pin.id], 2);
  book.adopt(pin);
  book.drop(pin.id);
  book.adopt(pin_of("a", 2));
  EXPECT_EQ(told.size(), 1u);
  EXPECT_TRUE(book.shared().empty()) << "it is nobody else's to know";
  book.erase(pin.id);
  EXPECT_EQ(told[pin.id], 3);
  pin.expires = true;
  pin.until = TimePoint() + std::chrono::seconds(5);
  book.adopt(pin);
  book.expire(TimePoint() + std::chrono::seconds(5));
  const std::vector expected{PinChange::kMade, PinChange::kPlaced, PinChange::kRemoved, PinChange::kExpired};
  EXPECT_EQ(changes, expected);
}

TEST(PinBook, PinsOfOtherGatewaysCountForTheirOwner) {
  PinBook book(PinOptions{});
  for (int i = 0; i < 64; ++i) book.adopt(pin_of("many", i, 1));
  EXPECT_NE(book.refusal(wish_of("many", 64, 1)).find("pins.per_owner"), std::string::npos);
}

TEST(PinBook, TextsAreBoundedInBytes) {
  PinOptions options;
  options.text_bytes = 250;
  PinBook book(options);
  EXPECT_TRUE(book.put(pin_of("a", 1)));
  EXPECT_TRUE(book.put(pin_of("a", 2)));
  EXPECT_FALSE(book.put(pin_of("a", 3)));
  EXPECT_TRUE(book.put(pin_of("a", 2))) << "again";
  Pin longer = pin_of("a", 2);
  longer.body += std::string(100, 'x');
  EXPECT_FALSE(book.put(longer));
  EXPECT_NE(book.find(longer.id), nullptr) << "the last one stays";
  EXPECT_EQ(book.text_bytes(), 200u);
  book.erase(pin_of("a", 1).id);
  EXPECT_TRUE(book.put(pin_of("a", 3)));
}

}  // namespace pin_book_test
}  // namespace troupe::route
