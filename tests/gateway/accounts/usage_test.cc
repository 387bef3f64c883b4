#include <gtest/gtest.h>

#include "common/json/json.h"
#include "gateway/access/end_user.h"
#include "gateway/access/usage_record.h"
#include "gateway/access/usage_totals.h"

namespace troupe {
namespace {

constexpr int64_t kNoon = int64_t{20'000} * 86'400'000 + 43'200'000;

UsageRecord record_of(std::string_view key, std::string_view user, int64_t prompt, int64_t unix_ms) {
  UsageRecord record;
  record.unix_ms = unix_ms;
  record.key = key;
  record.end_user = user;
  record.model = "demo";
  record.status = 200;
  record.tokens = {prompt, prompt / 2, 10, 3, true};
  return record;
}

TEST(EndUser, IsNamedInOneOrder) {
  std::vector<std::pair<std::string, std::string>> headers{{"x-mine", "mine"}};
  const std::string_view body = end_user_in_body("user", "metadata", "safe");
  EXPECT_EQ(end_user_of(headers, "", body), "user");
  EXPECT_EQ(end_user_of(headers, "x-mine", body), "mine");
  headers.emplace_back("x-litellm-end-user-id", "end");
  EXPECT_EQ(end_user_of(headers, "x-mine", body), "end");
  headers.emplace_back("x-litellm-customer-id", "customer");
  EXPECT_EQ(end_user_of(headers, "x-mine", body), "customer");
  EXPECT_EQ(end_user_in_body("", "metadata", "safe"), "metadata");
  EXPECT_EQ(end_user_in_body("", "", "safe"), "safe");
  EXPECT_EQ(end_user_of({}, "", std::string(1000, 'a')).size(), kEndUserBytesMax);
  EXPECT_NE(end_user_id("a", "x"), end_user_id("b", "x"));
}

TEST(EndUser, IsUtf8WhateverHeadersHold) {
  std::string name(kEndUserBytesMax - 1, 'a');
  EXPECT_EQ(end_user_of({}, "", name + "\u00e9"), name) << "cut between characters";
  const std::vector<std::pair<std::string, std::string>> headers{{"x-litellm-customer-id", "caf\xe9"}};
  const std::string_view found = end_user_of(headers, "", "user");
  EXPECT_EQ(found, "user") << "no JSON can hold the other";
}

TEST(UsageLine, IsJsonWithoutHoles) {
  UsageRecord record = record_of("writers", "a\"b\n", 100, kNoon + 7);
  record.ttft_ms = 50;
  record.duration_ms = 1050;
  const auto line = parse_json(usage_line(record));
  ASSERT_TRUE(line.ok());
  const bj::object& fields = line->as_object();
  EXPECT_EQ(fields.at("time").as_string(), "2024-10-04T12:00:00.007Z");
  EXPECT_EQ(fields.at("end_user").as_string(), "a\"b\n");
  EXPECT_EQ(fields.at("tokens_per_s").as_double(), 9.0);
  EXPECT_TRUE(fields.at("arm").is_null());
  record.ttft_ms = -1;
  record.end_user = "\xff";
  EXPECT_TRUE(parse_json(usage_line(record))->as_object().at("ttft_ms").is_null());
}

TEST(UsageTotals, AddUpByKeyUserAndModel) {
  UsageTotals totals;
  totals.add(record_of("a", "x", 100, kNoon));
  totals.add(record_of("b", "x", 200, kNoon));
  totals.add(record_of("a", "", 300, kNoon));
  EXPECT_EQ(totals.today(UsageBy::kKey, "a", kNoon).prompt_tokens, 400);
  EXPECT_EQ(totals.today(UsageBy::kEndUser, "b/x", kNoon).prompt_tokens, 200);
  EXPECT_EQ(totals.today(UsageBy::kEndUser, UsageTotals::kNone, kNoon).prompt_tokens, 300);
  EXPECT_EQ(totals.today(UsageBy::kModel, "demo", kNoon), (UsageSums{3, 600, 300, 30, 9, 0}));
}

TEST(UsageTotals, AnHourPassesAndADayEnds) {
  UsageTotals totals;
  totals.add(record_of("a", "", 100, kNoon));
  EXPECT_EQ(totals.last_hour(UsageBy::kKey, "a", kNoon + 3'299'999).prompt_tokens, 100);
  EXPECT_EQ(totals.last_hour(UsageBy::kKey, "a", kNoon + 3'600'000).prompt_tokens, 0);
  EXPECT_EQ(totals.today(UsageBy::kKey, "a", kNoon + 43'199'999).prompt_tokens, 100);
  EXPECT_EQ(totals.today(UsageBy::kKey, "a", kNoon + 43'200'000).prompt_tokens, 0);
}

TEST(UsageTotals, ManyNamesAreOthersAndNothingIsLost) {
  UsageTotals totals;
  const size_t names = UsageTotals::kRowsMax + 100;
  for (size_t i = 0; i < names; ++i) totals.add(record_of("a", std::to_string(i), 1, kNoon));
  EXPECT_EQ(totals.today(UsageBy::kEndUser, UsageTotals::kOthers, kNoon).prompt_tokens, 100);
  const auto shown = parse_json(totals.json(UsageBy::kEndUser, 10, kNoon));
  ASSERT_TRUE(shown.ok());
  const bj::object& today = shown->as_object().at("today").as_object();
  EXPECT_EQ(today.at("total").as_object().at("prompt_tokens").as_int64(), static_cast<int64_t>(names));
  EXPECT_EQ(today.at("rows").as_array().size(), 10u);
  EXPECT_EQ(today.at("left_out").as_int64(), static_cast<int64_t>(UsageTotals::kRowsMax + 1 - 10));
}

}  // namespace
}  // namespace troupe
