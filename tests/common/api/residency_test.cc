#include "common/api/residency.h"

#include <gtest/gtest.h>

#include "common/api/sse.h"

namespace troupe::api_residency_test {

using Kind = ResidencyEvent::Kind;

const ResidencyItem kSet = {HolderKind::kSet, hash_bytes("Newton"), 1488};
const ResidencyItem kSession = {HolderKind::kSession, hash_bytes("someone"), 1600};
const ResidencyItem kPinned = {HolderKind::kSet, hash_bytes("Song Jiang"), 2048, true};

ApiResult<ResidencyEvent> round_trip(Kind kind, const std::vector<ResidencyItem>& items) {
  std::string bytes;
  append_residency_event(bytes, kind, "e \"1\"", 42, items);
  std::vector<SseEvent> events;
  SseParser parser;
  EXPECT_TRUE(parser.feed(bytes, [&](const SseEvent& event) { events.push_back(event); }).ok());
  EXPECT_EQ(events.size(), 1u) << bytes;
  return parse_residency_event(events.at(0).event, events.at(0).data);
}

TEST(ApiResidency, EventsRoundTrip) {
  for (const Kind kind : {Kind::kAdmitted, Kind::kEvicted}) {
    for (const ResidencyItem& item : {kSet, kSession, kPinned}) {
      const auto back = round_trip(kind, {item});
      ASSERT_TRUE(back.ok()) << back.error().message;
      EXPECT_EQ(back.value().kind, kind);
      EXPECT_EQ(back.value().epoch, "e \"1\"");
      EXPECT_EQ(back.value().seq, 42u);
      EXPECT_EQ(back.value().items, std::vector<ResidencyItem>{item});
    }
  }
}

TEST(ApiResidency, SnapshotHoldsSetsAndSessionsOrNothing) {
  EXPECT_TRUE(round_trip(Kind::kSnapshot, {}).value().items.empty());
  const auto back = round_trip(Kind::kSnapshot, {kSession, kSet, kSession, kPinned});
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back.value().items, (std::vector<ResidencyItem>{kSet, kPinned, kSession, kSession}));
}

TEST(ApiResidency, RefusesInvalidEventsNamingTheField) {
  const std::string name(32, 'a');
  const std::string good = R"({"epoch":"e","seq":1,"set":")" + name + R"(","tokens":16})";
  EXPECT_TRUE(parse_residency_event("admitted", good).ok());
  EXPECT_FALSE(parse_residency_event("message", good).ok());
  EXPECT_EQ(parse_residency_event("snapshot", good).error().param, "sets");
  EXPECT_FALSE(parse_residency_event("admitted", "[]").ok());
  EXPECT_FALSE(parse_residency_event("admitted", good + "}").ok());
  EXPECT_EQ(parse_residency_event("admitted", R"({"seq":1,"set":")" + name + "\"}").error().param, "epoch");
  EXPECT_EQ(parse_residency_event("admitted", R"({"epoch":"e","seq":-1})").error().param, "seq");
  EXPECT_EQ(parse_residency_event("admitted", R"({"epoch":"e","seq":1})").error().param, "set");
  EXPECT_EQ(parse_residency_event("evicted", R"({"epoch":"e","seq":1,"set":"abc"})").error().param, "set");
  EXPECT_EQ(parse_residency_event("evicted", R"({"epoch":"e","seq":1,"set":")" + name + R"(","tokens":-1})")
                .error()
                .param,
            "tokens");
  EXPECT_EQ(parse_residency_event("snapshot", R"({"epoch":"e","seq":1,"sets":[{"tokens":1}],"sessions":[]})")
                .error()
                .param,
            "sets[0]");
}

}  // namespace troupe::api_residency_test
