// A worker's list of prefixes, as the worker writes it and a gateway reads it.

#include "gateway/cluster/pin_listing.h"

#include <gtest/gtest.h>

#include "common/api/prefix.h"

namespace troupe::pin_listing_test {

constexpr TimePoint kNow{std::chrono::hours(1)};

PrefixState state_of(const std::string& name, std::vector<std::string> owners) {
  PrefixState state;
  state.hash = hash_bytes(name);
  state.model = "demo";
  state.set = hash_bytes("set of " + name);
  state.tokens = 400;
  state.pinned = true;
  state.created_s = 1'700'000'000;
  state.owners = std::move(owners);
  return state;
}

std::string json_of(const std::vector<PrefixState>& states, bool with_owners = true) {
  return prefix_list_json({states, 400, 4000, with_owners});
}

TEST(PinListing, HasAPinForEachOwner) {
  PrefixState ends = state_of("a", {"x", "y"});
  ends.ttl_s = 600;
  ends.expires_s = 1'700'000'600;  // by the worker's clock, which may be any
  ends.left_s = 550;
  PrefixState unpinned = state_of("b", {});
  unpinned.pinned = false;
  const auto pins = parse_pin_listing(json_of({ends, unpinned, state_of("c", {})}), kNow, false);
  ASSERT_TRUE(pins.ok()) << pins.status();
  ASSERT_EQ(pins->size(), 2u) << "one without an owner is left out";
  for (size_t i = 0; i < 2; ++i) {
    const route::Pin& pin = (*pins)[i];
    EXPECT_EQ(pin.owner, i == 0 ? "x" : "y");
    EXPECT_EQ(pin.id, route::Pin::id_of(ends.hash, pin.owner));
    EXPECT_EQ(pin.prefix, ends.hash);
    EXPECT_EQ(pin.key.set, ends.set);
    EXPECT_EQ(pin.model, "demo");
    EXPECT_EQ(pin.tokens, 400);
    EXPECT_TRUE(pin.expires);
    EXPECT_EQ(pin.until, kNow + std::chrono::seconds(550));
    EXPECT_EQ(pin.answer, prefix_json(ends)) << "clients are shown what POST answered, and no owners";
  }
}

TEST(PinListing, OfAGatewayWithoutKeysHasThoseWithoutOwners) {
  const auto pins = parse_pin_listing(json_of({state_of("a", {"x"}), state_of("c", {})}), kNow, true);
  ASSERT_TRUE(pins.ok()) << pins.status();
  ASSERT_EQ(pins->size(), 1u) << "what a key has pinned is not for all";
  EXPECT_EQ((*pins)[0].owner, "");
  EXPECT_EQ((*pins)[0].prefix, hash_bytes("c"));
  EXPECT_FALSE((*pins)[0].expires);
  const auto older = parse_pin_listing(json_of({state_of("c", {})}, false), kNow, true);
  ASSERT_TRUE(older.ok() && older->size() == 1) << "a worker of an older version";
}

TEST(PinListing, MalformedOnesAreRefusedByTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "data"},
      {"[]", "data"},
      {R"({"data":[1]})", "data"},
      {R"({"data":[{"pinned":true,"model":"demo","owners":["x"]}]})", "id"},
      {R"({"data":[{"pinned":true,"id":"prefix-x","model":"demo","owners":["x"]}]})", "id"},
      {R"({"data":[{"pinned":true,"id":"prefix-00000000000000000000000000000001","owners":["x"]}]})",
       "model"},
      {R"({"data":[{"pinned":true,"id":"prefix-00000000000000000000000000000001","model":"m","owners":[1]}]})",
       "owners"}};
  for (const auto& [json, field] : cases) {
    const auto pins = parse_pin_listing(json, kNow, false);
    ASSERT_FALSE(pins.ok()) << json;
    EXPECT_NE(pins.status().message().find(" " + field + ":"), absl::string_view::npos) << pins.status();
  }
  EXPECT_FALSE(parse_pin_listing("nonsense", kNow, false).ok());
  EXPECT_TRUE(parse_pin_listing(R"({"data":[{"pinned":false}]})", kNow, false).ok());
}

}  // namespace troupe::pin_listing_test
