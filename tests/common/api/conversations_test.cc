#include "common/api/conversations.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace troupe::api_tails_test {

CachedConversation a_tail() {
  CachedConversation tail;
  tail.model = "the \"demo\"";
  tail.session = hash_bytes("someone");
  tail.set = hash_bytes("Newton");
  tail.salt = hash_bytes("a tenant");
  tail.prefix_tokens = 2;
  tail.tokens = 5;
  tail.ids = {7, 0, 31999, 7, 2};
  return tail;
}

void expect_same(const CachedConversation& got, const CachedConversation& want) {
  EXPECT_EQ(got.model, want.model);
  EXPECT_EQ(got.session, want.session);
  EXPECT_EQ(got.set, want.set);
  EXPECT_EQ(got.salt, want.salt);
  EXPECT_EQ(got.prefix_tokens, want.prefix_tokens);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.ids, want.ids);
}

TEST(ApiConversations, ConversationRoundTrips) {
  CachedConversation tail = a_tail();
  auto back = parse_conversation(conversation_json(tail));
  ASSERT_TRUE(back.ok()) << back.error().message;
  expect_same(back.value(), tail);
  tail.set = tail.salt = {};  // without a persona
  tail.prefix_tokens = 0;
  back = parse_conversation(conversation_json(tail));
  ASSERT_TRUE(back.ok()) << back.error().message;
  expect_same(back.value(), tail);
}

TEST(ApiConversations, ListsConversationsWithoutIds) {
  EXPECT_TRUE(parse_conversation_list(conversation_list_json({})).value().empty());
  CachedConversation first = a_tail(), second = a_tail();
  first.ids = second.ids = {};
  second.session = hash_bytes("another");
  second.tokens = 900;
  const auto back = parse_conversation_list(conversation_list_json(std::vector{first, second}));
  ASSERT_TRUE(back.ok()) << back.error().message;
  ASSERT_EQ(back.value().size(), 2u);
  expect_same(back.value()[0], first);
  expect_same(back.value()[1], second);
}

TEST(ApiConversations, RefusesInvalidConversationsNamingTheField) {
  const std::string name(32, 'a');
  const auto with = [&name](const std::string& field, const std::string& value) {
    std::string text = R"({"model":"m","session":")" + name + R"(","prefix_tokens":0,"ids":[1])";
    return text + ",\"" + field + "\":" + value + "}";
  };
  EXPECT_TRUE(parse_conversation(with("unknown", "1")).ok()) << "a later version may say more";
  const std::vector<std::array<std::string, 3>> cases = {
      {R"({"session":")" + name + R"(","ids":[1]})", "model", "is required"},
      {R"({"model":"m","ids":[1]})", "session", "is required"},
      {R"({"model":"m","session":")" + name + R"("})", "ids", "is required"},
      {R"({"model":"m","session":")" + name + R"(","ids":[]})", "ids", "at least one"},
      {R"({"model":"m","session":"abc","ids":[1]})", "session", "32 hex digits"},
      {R"({"model":"m","session":")" + name + R"(","set":7,"ids":[1]})", "set", ""},
      {R"({"model":"m","session":")" + name + R"(","ids":"1,2"})", "ids", "array"},
      {R"({"model":"m","session":")" + name + R"(","ids":[1,-1]})", "ids", ""},
      {R"({"model":"m","session":")" + name + R"(","ids":[1,1.5]})", "ids", ""},
      {R"({"model":"m","session":")" + name + R"(","prefix_tokens":2,"ids":[1]})", "prefix_tokens", "only 1"},
      {R"({"model":"m","session":")" + name + R"(","prefix_tokens":-2,"ids":[1]})", "prefix_tokens", ""},
  };
  for (const auto& [body, param, says] : cases) {
    const auto parsed = parse_conversation(body);
    ASSERT_FALSE(parsed.ok()) << body;
    EXPECT_TRUE(parsed.error().param.starts_with(param)) << body << ": " << parsed.error().param;
    EXPECT_NE(parsed.error().message.find(says), std::string::npos) << parsed.error().message;
  }
  EXPECT_FALSE(parse_conversation("[1]").ok());
  EXPECT_FALSE(parse_conversation_list("{}").ok());
  EXPECT_FALSE(parse_conversation_list(R"({"data":[7]})").ok());
  EXPECT_FALSE(parse_conversation_list(R"({"data":[{"model":"m"}]})").ok());
}

TEST(ApiConversations, ReadsTheSessionFromThePath) {
  EXPECT_EQ(conversation_session_of("/v1/conversations/abc"), "abc");
  for (const char* other :
       {"/v1/conversations", "/v1/conversations/", "/v1/conversationsabc", "/v1/models/abc", ""}) {
    EXPECT_EQ(conversation_session_of(other), "") << other;
  }
}

}  // namespace troupe::api_tails_test
