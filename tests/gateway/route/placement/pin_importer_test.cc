// A gateway that begins anew takes up its workers' pins, and does not bring back what was removed.

#include "gateway/route/placement/pin_importer.h"

#include <gtest/gtest.h>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace pin_importer_test {

using namespace testing_cluster;

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr Pin::Place kA{0, 1}, kB{1, 1};

Pin listed(const std::string& owner, int number, Duration left = Duration::zero()) {
  Pin pin;
  pin.prefix = hash_bytes("prefix " + std::to_string(number));
  pin.id = Pin::id_of(pin.prefix, owner);
  pin.owner = owner;
  pin.model = "demo";
  pin.tokens = 1000;
  pin.answer = "{}";
  pin.key.set = numbered_set(number);
  pin.expires = left > Duration::zero();
  pin.until = kNow + left;
  return pin;
}

struct PinUptakeTest : ::testing::Test {
  size_t take(const Pin::Place& place, const std::vector<Pin>& pins) {
    return importer.take(place, pins).size();
  }
  std::vector<const Pin*> of(const std::string& owner) const { return registry.of(owner); }

  PinRegistry registry{PinOptions{}};
  PinImporter importer{registry};
};

TEST_F(PinUptakeTest, PinsAreTheirOwnersAgain) {
  take(kA, {listed("x", 1, std::chrono::seconds(60)), listed("x", 2), listed("y", 1)});
  ASSERT_EQ(of("x").size(), 2u);
  ASSERT_EQ(of("y").size(), 1u);
  EXPECT_TRUE(registry.is_of_another(listed("x", 2).prefix, "y")) << "404 to others";
  const Pin& first = *registry.find(listed("x", 1).id);
  ASSERT_EQ(first.places.size(), 1u);
  EXPECT_EQ(first.places[0].node, 0);
  EXPECT_EQ(first.until, kNow + std::chrono::seconds(60));
  registry.expire(kNow + std::chrono::seconds(61));
  EXPECT_EQ(of("x").size(), 1u) << "it ends when it would have";
}

TEST_F(PinUptakeTest, SeveralNodesMayHoldOne) {
  take(kA, {listed("x", 1, std::chrono::seconds(60))});
  take(kB, {listed("x", 1, std::chrono::seconds(90))});
  take(kA, {listed("x", 1, std::chrono::seconds(60))});
  const Pin* pin = registry.find(listed("x", 1).id);
  ASSERT_NE(pin, nullptr);
  EXPECT_EQ(pin->places.size(), 2u);
  EXPECT_EQ(pin->until, kNow + std::chrono::seconds(90));
  take(kB, {});
  ASSERT_NE(registry.find(listed("x", 1).id), nullptr) << "it is at the first node still";
  take(kA, {});
  EXPECT_EQ(registry.size(), 0u) << "removed through another gateway";
}

TEST_F(PinUptakeTest, AreNotComputedAnewButForgotten) {
  take(kA, {listed("x", 1)});
  take(kB, {listed("x", 2)});
  EXPECT_EQ(importer.forget_lost([](const Pin::Place& place) { return place.node == kA.node; }), 1u);
  EXPECT_EQ(of("x").size(), 1u);
  EXPECT_EQ(importer.forget_lost([](const Pin::Place&) { return true; }), 0u);
}

TEST_F(PinUptakeTest, WhatTheBookKnowsBetterStays) {
  Pin own = listed("x", 1);
  own.body = "{\"messages\":[],\"ttl_s\":";
  own.places = {kB};
  registry.put(own);
  take(kA, {listed("x", 1, std::chrono::seconds(5))});
  const Pin* pin = registry.find(own.id);
  ASSERT_NE(pin, nullptr);
  EXPECT_EQ(pin->body, own.body);
  EXPECT_FALSE(pin->expires);
  take(kA, {});
  EXPECT_NE(registry.find(own.id), nullptr) << "the reconciler sees to it";
  EXPECT_EQ(importer.forget_lost([](const Pin::Place&) { return false; }), 0u);
  EXPECT_EQ(registry.size(), 1u);
}

TEST_F(PinUptakeTest, MadeAnewByItsOwnerItIsTheBooksOwn) {
  take(kA, {listed("x", 1)});
  PinRegistry::Wish wish;
  wish.owner = "x";
  wish.model = "demo";
  wish.body = "{}";
  wish.set = numbered_set(1);
  wish.tokens = 1000;
  wish.kv_tokens = 12'000;
  EXPECT_EQ(registry.refusal(wish), "") << "it takes no more than it did";
  wish.set = numbered_set(2);
  EXPECT_NE(registry.refusal(wish), "") << "another one would";
  Pin own = listed("x", 1);
  own.body = "{\"ttl_s\":";
  registry.put(own);
  take(kA, {});
  EXPECT_NE(registry.find(own.id), nullptr);
}

TEST_F(PinUptakeTest, RemovedHereItDoesNotComeBack) {
  take(kA, {listed("x", 1), listed("y", 1)});
  registry.erase(listed("x", 1).id);
  EXPECT_EQ(take(kA, {listed("x", 1), listed("y", 1)}), 0u) << "the list may be older than the removal";
  EXPECT_EQ(of("x").size(), 0u);
  EXPECT_EQ(take(kB, {listed("x", 1)}), 0u);
  const std::vector<Pin> again{listed("x", 1), listed("y", 1)};
  const auto to_remove = importer.take(kA, again);
  ASSERT_EQ(to_remove.size(), 1u) << "this node has missed it";
  EXPECT_EQ(to_remove[0]->owner, "x");
  EXPECT_EQ(of("x").size(), 0u);
  EXPECT_EQ(of("y").size(), 1u);
  EXPECT_EQ(take(kA, {listed("y", 1)}), 0u);
  EXPECT_EQ(take(kA, again), 0u) << "two lists in a row";
}

TEST_F(PinUptakeTest, MadeAgainAfterItsRemovalItStays) {
  take(kA, {listed("x", 1)});
  registry.erase(listed("x", 1).id);
  EXPECT_EQ(take(kA, {listed("x", 1)}), 0u);
  Pin own = listed("x", 1);
  own.body = "{\"ttl_s\":";
  registry.put(own);
  EXPECT_EQ(take(kA, {listed("x", 1)}), 0u);
  EXPECT_EQ(of("x").size(), 1u);
}

TEST_F(PinUptakeTest, IsBounded) {
  std::vector<Pin> many;
  for (int i = 0; i < 5000; ++i) many.push_back(listed("x", i));
  take(kA, many);
  EXPECT_EQ(registry.size(), PinImporter::kTakenMax);
  for (int i = 0; i < 5000; ++i) registry.erase(many[static_cast<size_t>(i)].id);
  EXPECT_EQ(take(kA, many), 0u);
  EXPECT_EQ(take(kA, many), PinImporter::kRemovedMax) << "the oldest removals are forgotten";
}

}  // namespace pin_importer_test
}  // namespace troupe::route
