#include "gateway/proxy/json_patch.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/core/random.h"
#include "common/json/json.h"
#include "gateway/access/tenant.h"

namespace troupe {
namespace body_members_test {

std::string salted(std::string_view body) {
  const JsonPatch salt{"cache_salt", "\"s\""};
  return with_members(body, {&salt, 1});
}

TEST(BodyMembers, ReplacesAMemberHoweverEscaped) {
  EXPECT_EQ(salted(R"({"a":1})"), R"({"a":1,"cache_salt":"s"})");
  EXPECT_EQ(salted(R"({"cache_salt":"mine","a":1})"), R"({"a":1,"cache_salt":"s"})");
  EXPECT_EQ(salted(R"({"a":1,"cache_salt":null})"), R"({"a":1,"cache_salt":"s"})");
  EXPECT_EQ(salted(R"({"cache_salt":"mine"})"), R"({"cache_salt":"s"})");
  EXPECT_EQ(salted(R"({"cache\u005fsalt" : "mine" , "a":1})"), R"({"a":1,"cache_salt":"s"})");
  EXPECT_EQ(salted("{}"), R"({"cache_salt":"s"})");
}

TEST(BodyMembers, TakesAMemberAwayWhoseNewValueIsEmpty) {
  const JsonPatch patches[] = {{.name = "persona", .takes_away = true}, {"messages", "[]"}};
  EXPECT_EQ(with_members(R"({"persona":{"name":"x"},"messages":[1],"n":2})", patches),
            R"({"n":2,"messages":[]})");
}

TEST(BodyMembers, AnArraysItemsAreAsTheyAreWritten) {
  const auto items = [](std::string_view body) {
    std::string out;
    for (const std::string_view item : array_items(body, "messages"))
      out.append("<").append(item).append(">");
    return out;
  };
  EXPECT_EQ(items(R"({"a":[0], "messages" : [ {"x": "]},{"} , [1, [2]] ,"s" ],"b":[3]})"),
            R"(<{"x": "]},{"}><[1, [2]]><"s">)");
  EXPECT_EQ(items(R"({"messag\u0065s":[{"a":1.50}]})"), R"(<{"a":1.50}>)");
  EXPECT_EQ(items(R"({"messages":[]})"), "");
  EXPECT_EQ(items(R"({"messages":"[1]"})"), "");
  EXPECT_EQ(items("{}"), "");
}

TEST(BodyMembers, LeavesTheRestUnchanged) {
  for (const char* inner : {R"("a" : [1, {"cache_salt":"inner"}, "}]"])",
                            R"("a":"\\","b":"\"cache_salt\":1,{")", R"("a":{"b":[[],{}]} ,"c":-1.5e3)",
                            "\"a\":\"\xe5\xae\x8b\\ud83d\\ude00\"", R"("\\":true,"":false)"}) {
    const std::string members(inner);
    const std::string out = salted(" \n{ " + members + "\t} \r\n");
    const auto before = parse_json("{" + members + "}");
    auto after = parse_json(out);
    ASSERT_TRUE(before.ok() && after.ok()) << out;
    EXPECT_EQ(after->as_object()["cache_salt"].as_string(), "s");
    after->as_object().erase("cache_salt");
    EXPECT_EQ(to_json(*after), to_json(*before));
  }
}

bj::value by_chance(route::Random& random, int depth) {
  const std::string strings[] = {"", "cache_salt", "\\", "\"}", "{[,", "\xe5\xae\x8b", "a\nb"};
  switch (depth > 3 ? random.below(4) : random.below(6)) {
    case 0:
      return nullptr;
    case 1:
      return random.below(1000) * 0.25;
    case 2:
      return random.below(2) == 0;
    case 3:
      return bj::value(strings[random.below(7)]);
    case 4: {
      bj::array array;
      for (uint32_t i = random.below(4); i > 0; --i) array.push_back(by_chance(random, depth + 1));
      return array;
    }
    default: {
      bj::object object;
      for (uint32_t i = random.below(4); i > 0; --i)
        object[strings[random.below(7)]] = by_chance(random, depth + 1);
      return object;
    }
  }
}

TEST(BodyMembers, AnyBodyKeepsItsValuesAndGetsTheMembers) {
  route::Random random(1);
  for (int i = 0; i < 5000; ++i) {
    bj::object object;
    for (uint32_t n = random.below(5); n > 0; --n) {
      const bj::value name = by_chance(random, 4);
      object[name.is_string() ? name.as_string() : bj::string("k")] = by_chance(random, 0);
    }
    auto after = parse_json(salted(to_json(object)));
    ASSERT_TRUE(after.ok()) << to_json(object);
    object["cache_salt"] = "s";
    EXPECT_EQ(*after, bj::value(object)) << to_json(object);
  }
}

TEST(Tenant, SaltsDifferAndNeedTheSecret) {
  const std::string secret(32, 'k');
  const std::string a = tenant_salt(secret, "a"), b = tenant_salt(secret, "b");
  EXPECT_EQ(a.size(), 64u);
  EXPECT_EQ(a, tenant_salt(secret, "a"));
  const std::set<std::string> all{a,
                                  b,
                                  tenant_salt(std::string(32, 'l'), "a"),
                                  salt_within(a, ""),
                                  salt_within(b, ""),
                                  salt_within(a, "own"),
                                  salt_within(b, "own"),
                                  salt_within(a, salt_within(b, ""))};
  EXPECT_EQ(all.size(), 8u);
}

}  // namespace body_members_test

// A pin's body is kept up to the value of its last member, which is written when it is asked for.
TEST(JsonPatch, AMemberWithoutAValueIsThereForOneToCome) {
  const JsonPatch last[] = {{"ttl_s"}};
  EXPECT_EQ(with_members(R"({"ttl_s":5,"a":1})", last), R"({"a":1,"ttl_s":})");
}

}  // namespace troupe
