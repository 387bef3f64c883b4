// Owners of pins, how many one may have, and which have to be computed anew.

#include "gateway/route/placement/pin_registry.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace pin_registry_test {

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

PinRegistry::Wish wish_of(std::string_view owner, int number, int64_t tokens = 1000) {
  PinRegistry::Wish wish;
  wish.owner = owner;
  wish.model = "demo";
  wish.body = body_of(number);
  wish.tokens = tokens;
  wish.kv_tokens = 40'000;
  return wish;
}

TEST(PinRegistry, OneOwnerLeavesRoomForOthers) {
  PinRegistry registry(PinOptions{});
  int kept = 0;
  while (registry.refusal(wish_of("greedy", kept)).empty()) registry.put(pin_of("greedy", kept++));
  EXPECT_EQ(kept, 5) << "an eighth of 40,000";
  EXPECT_NE(registry.refusal(wish_of("greedy", 99)).find("pins.kv_share"), std::string::npos);
  EXPECT_EQ(registry.refusal(wish_of("greedy", 3)), "") << "again: it takes no more";
  EXPECT_EQ(registry.refusal(wish_of("other", 99)), "");
  PinRegistry::Wish unknown = wish_of("greedy", 99);
  unknown.kv_tokens = 0;
  EXPECT_EQ(registry.refusal(unknown), "") << "no worker reports its memory";
}

TEST(PinRegistry, OneOwnersPinsAreBoundedInNumber) {
  PinRegistry registry(PinOptions{});
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(registry.refusal(wish_of("many", i, 1)), "");
    registry.put(pin_of("many", i, 1));
  }
  EXPECT_NE(registry.refusal(wish_of("many", 64, 1)).find("pins.per_owner"), std::string::npos);
  registry.erase(pin_of("many", 7).id);
  EXPECT_EQ(registry.refusal(wish_of("many", 64, 1)), "");
}

// Prefixes of one set, or of none, are as many as a client likes.
TEST(PinRegistry, PrefixesOfOneSetCountEachByItself) {
  PinRegistry registry(PinOptions{});
  for (int i = 0; i < 5; ++i) {
    Pin pin = pin_of("greedy", i);
    pin.key.set = i < 2 ? Hash128() : numbered_set(1);
    EXPECT_EQ(registry.refusal(wish_of("greedy", i)), "");
    registry.put(pin);
  }
  EXPECT_NE(registry.refusal(wish_of("greedy", 5)), "");
}

// Workers compute for seconds before a pin is kept.
TEST(PinRegistry, WhatIsOnItsWayCounts) {
  PinRegistry registry(PinOptions{});
  std::vector<PinRegistry::Reservation> on_their_way;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(registry.refusal(wish_of("greedy", i)), "");
    on_their_way.emplace_back(registry, wish_of("greedy", i));
  }
  EXPECT_NE(registry.refusal(wish_of("greedy", 5)), "");
  EXPECT_EQ(registry.refusal(wish_of("other", 5)), "");
  on_their_way.pop_back();
  EXPECT_EQ(registry.refusal(wish_of("greedy", 5)), "");
  on_their_way.clear();
  EXPECT_EQ(registry.text_bytes(), 0u);
}

TEST(PinRegistry, OneOwnersRequestsHaveAPartOfTheRoomForTexts) {
  PinOptions options;
  options.text_bytes = 1000;
  PinRegistry registry(options);
  registry.put(pin_of("a", 1, 1));
  registry.put(pin_of("a", 2, 1));
  EXPECT_NE(registry.refusal(wish_of("a", 3, 1)).find("pins.text_bytes"), std::string::npos);
  EXPECT_EQ(registry.refusal(wish_of("b", 3, 1)), "");
}

TEST(PinRegistry, OwnersOfOnePrefixDoNotUndoEachOthers) {
  PinRegistry registry(PinOptions{});
  const Pin of_a = pin_of("a", 1), of_b = pin_of("b", 1);
  ASSERT_EQ(of_a.prefix, of_b.prefix);
  registry.put(of_a);
  EXPECT_FALSE(registry.is_of_another(of_a.prefix, "a"));
  EXPECT_TRUE(registry.is_of_another(of_a.prefix, "b"));
  registry.put(of_b);
  registry.erase(of_b.id);
  EXPECT_NE(registry.find(of_a.id), nullptr);
  EXPECT_FALSE(registry.placed(of_b.id, {2, 1})) << "it was deleted meanwhile";
  registry.unplace(of_a.prefix);
  const auto holds = [](const Pin::Place&) { return true; };
  EXPECT_EQ(registry.next_lost(holds), registry.find(of_a.id)) << "workers unpinned it for b";
}

// A node keeps a prefix until the end of the last request for it, whichever gateway sent that.
TEST(PinRegistry, ANodeHoldsAPrefixUntilTheEndThatItGotLast) {
  PinRegistry registry(PinOptions{});
  const Pin of_a = pin_of("a", 1);
  registry.put(of_a);
  registry.update_expiry(of_a.prefix, {0, 1, at_ms(1000)});
  registry.update_expiry(of_a.prefix, {0, 2, at_ms(9000)});
  registry.update_expiry(of_a.prefix, {5, 1, at_ms(9000)});
  const auto holds_at = [](TimePoint now) {
    return [now](const Pin::Place& place) { return now < place.ends; };
  };
  EXPECT_EQ(registry.next_lost(holds_at(at_ms(999))), nullptr);
  EXPECT_NE(registry.next_lost(holds_at(at_ms(1000))), nullptr);
}

TEST(PinRegistry, EachOwnerSeesItsOwn) {
  PinRegistry registry(PinOptions{});
  for (int i = 0; i < 6; ++i) registry.put(pin_of(i % 2 == 0 ? "a" : "b", i));
  ASSERT_EQ(registry.of("a").size(), 3u);
  for (const Pin* pin : registry.of("a")) EXPECT_EQ(pin->owner, "a");
  EXPECT_TRUE(registry.of("c").empty());
}

TEST(PinRegistry, PinEndsWithItsTime) {
  PinRegistry registry(PinOptions{});
  Pin ends = pin_of("a", 1);
  ends.expires = true;
  ends.until = at_ms(1000);
  registry.put(ends);
  registry.put(pin_of("a", 2));
  registry.expire(at_ms(999));
  EXPECT_EQ(registry.size(), 2u);
  registry.expire(at_ms(1000));
  EXPECT_EQ(registry.size(), 1u);
  EXPECT_EQ(registry.find(ends.id), nullptr);
}

// A worker died, another began again with an empty cache: every pin of theirs is computed, in turn.
TEST(PinRegistry, WhatNoNodeHoldsIsComputedAnewInTurn) {
  PinRegistry registry(PinOptions{});
  for (int i = 0; i < 9; ++i) {
    Pin pin = pin_of("a", i);
    pin.places = {{static_cast<NodeIndex>(i % 3), 1}};
    if (i == 0) pin.places.push_back({2, 1});
    registry.put(pin);
  }
  std::map<NodeIndex, uint32_t> lives{{0, 2}, {2, 1}};  // 1 is dead
  const auto holds = [&](const Pin::Place& place) {
    const auto its = lives.find(place.node);
    return its != lives.end() && its->second == place.incarnation;
  };
  std::map<Hash128, int> computed;
  while (const Pin* lost = registry.next_lost(holds)) {
    computed[lost->id] += 1;
    registry.placed(lost->id, {2, 1});
    ASSERT_LT(computed.size(), 9u);
  }
  EXPECT_EQ(computed.size(), 5u) << "those of 0 and 1 but the one that 2 holds, too";
  for (const auto& [id, times] : computed) EXPECT_EQ(times, 1);
  // Where none can be computed all have their turn.
  lives.clear();
  for (int i = 0; i < 18; ++i) computed[registry.next_lost(holds)->id] += 1;
  EXPECT_EQ(computed.size(), 9u);
}

// Another gateway wrote where they are held: who is there, in the same life of its cache, holds them.
TEST(PinRegistry, WhatAnotherGatewayKnewIsFoundAgain) {
  PinRegistry registry(PinOptions{});
  for (int i = 0; i < 3; ++i) {
    Pin pin = pin_of("a", i);
    pin.places.clear();
    pin.claims = {{"w" + std::to_string(i), "life"}};
    registry.adopt(pin);
  }
  registry.settle_claims([](const Pin::Claim& claim) {
    return claim.node == "w1" ? Pin::Place{1, 4} : Pin::Place{};
  });
  const auto holds = [](const Pin::Place& place) { return place.node == 1 && place.incarnation == 4; };
  std::map<Hash128, int> lost;
  for (int i = 0; i < 6; ++i) lost[registry.next_lost(holds)->id] += 1;
  EXPECT_EQ(lost.size(), 2u);
  EXPECT_FALSE(lost.contains(pin_of("a", 1).id));
  const auto mine = [](const Pin& pin) { return pin.id == pin_of("a", 2).id; };
  EXPECT_EQ(registry.next_lost(holds, mine)->id, pin_of("a", 2).id) << "the other one is another gateway's";
  registry.placed(pin_of("a", 2).id, {1, 4});
  EXPECT_EQ(registry.next_lost(holds, mine), nullptr);
}

TEST(PinRegistry, ReportsWhatIsChangedHereAndNotWhatIsAdopted) {
  PinRegistry registry(PinOptions{});
  std::map<Hash128, int> reported;
  std::vector<PinChange> changes;
  registry.on_change = [&](const Hash128& id, PinChange change) {
    reported[id] += 1;
    changes.push_back(change);
  };
  Pin pin = pin_of("a", 1);
  pin.shared = true;
  Pin huge = pin;
  huge.body = std::string(PinOptions().text_bytes + 1, 'x');
  EXPECT_FALSE(registry.put(huge));
  EXPECT_TRUE(reported.empty()) << "others keep theirs";
  registry.put(pin);
  EXPECT_EQ(reported[pin.id], 1);
  EXPECT_EQ(registry.shared(), std::vector{pin.id});
  registry.placed(pin.id, {2, 1});
  EXPECT_EQ(reported[pin.id], 2);
  registry.adopt(pin);
  registry.drop(pin.id);
  registry.adopt(pin_of("a", 2));
  EXPECT_EQ(reported.size(), 1u);
  EXPECT_TRUE(registry.shared().empty()) << "it is not shared";
  registry.erase(pin.id);
  EXPECT_EQ(reported[pin.id], 3);
  pin.expires = true;
  pin.until = TimePoint() + std::chrono::seconds(5);
  registry.adopt(pin);
  registry.expire(TimePoint() + std::chrono::seconds(5));
  const std::vector expected{PinChange::kMade, PinChange::kPlaced, PinChange::kRemoved, PinChange::kExpired};
  EXPECT_EQ(changes, expected);
}

TEST(PinRegistry, PinsOfOtherGatewaysCountForTheirOwner) {
  PinRegistry registry(PinOptions{});
  for (int i = 0; i < 64; ++i) registry.adopt(pin_of("many", i, 1));
  EXPECT_NE(registry.refusal(wish_of("many", 64, 1)).find("pins.per_owner"), std::string::npos);
}

TEST(PinRegistry, TextsAreBoundedInBytes) {
  PinOptions options;
  options.text_bytes = 250;
  PinRegistry registry(options);
  EXPECT_TRUE(registry.put(pin_of("a", 1)));
  EXPECT_TRUE(registry.put(pin_of("a", 2)));
  EXPECT_FALSE(registry.put(pin_of("a", 3)));
  EXPECT_TRUE(registry.put(pin_of("a", 2))) << "again";
  Pin longer = pin_of("a", 2);
  longer.body += std::string(100, 'x');
  EXPECT_FALSE(registry.put(longer));
  EXPECT_NE(registry.find(longer.id), nullptr) << "the last one stays";
  EXPECT_EQ(registry.text_bytes(), 200u);
  registry.erase(pin_of("a", 1).id);
  EXPECT_TRUE(registry.put(pin_of("a", 3)));
}

}  // namespace pin_registry_test
}  // namespace troupe::route
