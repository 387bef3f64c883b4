#include "gateway/body_members.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/core/json.h"
#include "gateway/tenant.h"

namespace troupe {
namespace body_members_test {

std::string salted(std::string_view body) {
  const BodyMember salt{"cache_salt", "\"s\""};
  return with_members(body, {&salt, 1});
}

TEST(BodyMembers, ReplacesAMemberHoweverItIsSpelt) {
  EXPECT_EQ(salted(R"({"a":1})"), R"({"a":1,"cache_salt":"s"})");
  EXPECT_EQ(salted(R"({"cache_salt":"mine","a":1})"), R"({"a":1,"cache_salt":"s"})");
  EXPECT_EQ(salted(R"({"a":1,"cache_salt":null})"), R"({"a":1,"cache_salt":"s"})");
  EXPECT_EQ(salted(R"({"cache_salt":"mine"})"), R"({"cache_salt":"s"})");
  EXPECT_EQ(salted(R"({"cache\u005fsalt" : "mine" , "a":1})"), R"({"a":1,"cache_salt":"s"})");
  EXPECT_EQ(salted("{}"), R"({"cache_salt":"s"})");
}

TEST(BodyMembers, LeavesAllElseAsItCame) {
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

TEST(Tenant, SaltsAreApartAndNotToBeGuessed) {
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
}  // namespace troupe
