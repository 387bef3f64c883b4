#include "gateway/route/key/prefix_key.h"

#include <gtest/gtest.h>

#include <set>

namespace troupe::route {
namespace prefix_key_test {

GenerateRequest chat(std::vector<std::pair<Role, std::string>> turns) {
  GenerateRequest request;
  request.model = "demo";
  for (auto& [role, text] : turns) {
    ChatMessage message;
    message.role = role;
    message.content = std::move(text);
    request.messages.push_back(std::move(message));
  }
  return request;
}

GenerateRequest completion(std::string prompt) {
  GenerateRequest request;
  request.kind = GenerateRequest::Kind::kCompletion;
  request.model = "demo";
  request.prompt = std::move(prompt);
  return request;
}

const std::string kCard = "You are Song Jiang, leader of the 108 heroes.";

TEST(PrefixKey, UsersOfOnePersonaShareASet) {
  const auto a = make_prefix_key(chat({{Role::kSystem, kCard}, {Role::kUser, "Who are you?"}}), "");
  const auto b = make_prefix_key(chat({{Role::kSystem, kCard}, {Role::kUser, "Where is your camp?"}}), "");
  EXPECT_FALSE(a.set.is_zero());
  EXPECT_EQ(a.set, b.set);
  EXPECT_NE(a.session, b.session);
  EXPECT_EQ(a.prefix_messages, 1);
  EXPECT_EQ(a.prefix_bytes, kCard.size());
  EXPECT_EQ(a.prompt_bytes, kCard.size() + 12);
}

TEST(PrefixKey, AnyChangeOfThePrefixChangesTheSet) {
  const GenerateRequest base = chat({{Role::kSystem, kCard}, {Role::kUser, "hi"}});
  std::vector<GenerateRequest> others(8, base);
  others[0].model = "other";
  others[1].cache_salt = "tenant-b";
  others[2].tools_json = R"([{"type":"function"}])";
  others[3].messages[0].content += " ";
  others[4].messages[0].extra_json = R"({"name":"x"})";
  others[5].messages.insert(others[5].messages.begin() + 1, ChatMessage{Role::kAssistant, "Welcome.", ""});
  others[6].documents_json = R"([{"type":"function"}])";
  others[7].documents_json = "[]";
  std::set<std::string> sets{make_prefix_key(base, "").set.hex()};
  for (const auto& other : others) sets.insert(make_prefix_key(other, "").set.hex());
  EXPECT_EQ(sets.size(), others.size() + 1);
}

// The gateway put the card there: what stands behind it is a user's own.
TEST(PrefixKey, APersonaOfKnownLengthIsTheSetWhateverFollowsIt) {
  const auto card = make_prefix_key(chat({{Role::kSystem, kCard}}), "");
  const auto named = make_prefix_key(
      chat({{Role::kSystem, kCard}, {Role::kSystem, "User is called Ann."}, {Role::kUser, "hi"}}), "", 1);
  EXPECT_EQ(named.set, card.set);
  EXPECT_EQ(named.prefix_messages, 1);
  EXPECT_EQ(named.guessed_anchors, 1);
  EXPECT_EQ(named.prefix_bytes, kCard.size());
  EXPECT_NE(
      make_prefix_key(
          chat({{Role::kSystem, kCard}, {Role::kSystem, "User is called Ann."}, {Role::kUser, "hi"}}), "")
          .set,
      card.set);
}

// To most templates both are the system turn, and a persona's clients may send either.
TEST(PrefixKey, DeveloperIsSystem) {
  const GenerateRequest system = chat({{Role::kSystem, kCard}, {Role::kUser, "hi"}});
  const GenerateRequest developer = chat({{Role::kDeveloper, kCard}, {Role::kUser, "hi"}});
  EXPECT_EQ(make_prefix_key(developer, "").set, make_prefix_key(system, "").set);
  EXPECT_EQ(make_prefix_key(developer, "").session, make_prefix_key(system, "").session);
}

// A long text is linked by its digest, which differs from the text with these bytes.
TEST(PrefixKey, TextAndItsDigestDiffer) {
  const std::string card(1000, 'x');
  const Hash128 digest = hash_bytes(card);
  std::string bytes;
  for (const uint64_t half : {digest.hi, digest.lo}) {
    for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(half >> shift);
  }
  const auto set_of = [](const std::string& text) {
    return make_prefix_key(chat({{Role::kSystem, text}, {Role::kUser, "x"}}), "").set;
  };
  EXPECT_NE(set_of(card), set_of(bytes));
}

TEST(PrefixKey, BoundariesBetweenMessagesCount) {
  const auto one =
      make_prefix_key(chat({{Role::kSystem, "ab"}, {Role::kSystem, "c"}, {Role::kUser, "x"}}), "");
  const auto two =
      make_prefix_key(chat({{Role::kSystem, "a"}, {Role::kSystem, "bc"}, {Role::kUser, "x"}}), "");
  EXPECT_NE(one.set, two.set);
  ChatMessage split{Role::kSystem, "a", "b"};
  ChatMessage joined{Role::kSystem, "ab", ""};
  GenerateRequest with_extra = chat({{Role::kUser, "x"}}), without = with_extra;
  with_extra.messages.insert(with_extra.messages.begin(), split);
  without.messages.insert(without.messages.begin(), joined);
  EXPECT_NE(make_prefix_key(with_extra, "").set, make_prefix_key(without, "").set);
}

TEST(PrefixKey, GreetingBeforeTheFirstUserTurnBelongsToThePersona) {
  const auto key = make_prefix_key(
      chat({{Role::kSystem, kCard}, {Role::kAssistant, "Welcome, brother."}, {Role::kUser, "hi"}}), "");
  EXPECT_EQ(key.prefix_messages, 2);
  EXPECT_EQ(key.set, key.anchors[1].hash);
}

TEST(PrefixKey, PromptThatBeginsWithAUserTurnHasNoSet) {
  const auto key = make_prefix_key(chat({{Role::kUser, "hi"}}), "");
  EXPECT_TRUE(key.set.is_zero());
  EXPECT_EQ(key.prefix_messages, 0);
  EXPECT_EQ(key.prefix_bytes, 0u);
  EXPECT_FALSE(key.session.is_zero());
}

TEST(PrefixKey, PromptWithoutAUserTurnIsAllPrefix) {
  const auto key = make_prefix_key(chat({{Role::kSystem, kCard}}), "");
  EXPECT_EQ(key.set, key.anchors.back().hash);
  EXPECT_EQ(key.prefix_messages, 1);
  EXPECT_TRUE(key.session.is_zero());
}

TEST(PrefixKey, LaterTurnsKeepSetSessionAndEarlierAnchors) {
  auto request = chat({{Role::kSystem, kCard}, {Role::kUser, "hi"}});
  const auto first = make_prefix_key(request, "");
  request.messages.push_back({Role::kAssistant, "Well met.", ""});
  request.messages.push_back({Role::kUser, "And then?", ""});
  const auto later = make_prefix_key(request, "");
  EXPECT_EQ(later.set, first.set);
  EXPECT_EQ(later.session, first.session);
  ASSERT_EQ(later.anchors.size(), 4u);
  EXPECT_EQ(later.anchors[1].hash, first.anchors[1].hash);
  EXPECT_LT(later.anchors[2].bytes, later.anchors[3].bytes);
  EXPECT_EQ(later.anchors[3].bytes, later.prompt_bytes);
}

TEST(PrefixKey, SessionNamesAreExactAndRankedBySource) {
  auto request = chat({{Role::kSystem, kCard}, {Role::kUser, "hi"}});
  EXPECT_EQ(make_prefix_key(request, "").session_source, SessionSource::kFirstTurn);
  request.user = "u1";
  const auto by_user = make_prefix_key(request, "");
  EXPECT_EQ(by_user.session_source, SessionSource::kUser);
  request.prompt_cache_key = "u1";
  const auto by_cache_key = make_prefix_key(request, "");
  EXPECT_EQ(by_cache_key.session_source, SessionSource::kPromptCacheKey);
  EXPECT_NE(by_cache_key.session, by_user.session) << "the same name from another source is another name";
  const auto one = make_prefix_key(request, "session-1");
  const auto twelve = make_prefix_key(request, "session-12");
  EXPECT_EQ(one.session_source, SessionSource::kHeader);
  EXPECT_NE(one.session, twelve.session);
  request.cache_salt = "other tenant";
  EXPECT_NE(make_prefix_key(request, "session-1").session, one.session);
}

TEST(PrefixKey, PromptsAreKeyedByTheirFirstChunk) {
  const std::string persona(kPromptGuessBytes, 'p');
  const auto a = make_prefix_key(completion(persona + "first question"), "");
  const auto b = make_prefix_key(completion(persona + "second question" + persona), "");
  EXPECT_EQ(a.set, b.set);
  EXPECT_EQ(a.prefix_bytes, kPromptGuessBytes);
  EXPECT_EQ(a.anchors.size(), kPromptGuessBytes / 64);
  EXPECT_EQ(b.anchors.back().bytes, (2 * kPromptGuessBytes + 15) / 64 * 64);
  EXPECT_EQ(b.guessed_anchors, 16);
  EXPECT_TRUE(a.session.is_zero());
  const auto chat_key = make_prefix_key(chat({{Role::kSystem, persona}, {Role::kUser, "x"}}), "");
  EXPECT_NE(chat_key.set, a.set);
}

TEST(PrefixKey, ShortPromptHasNoSet) {
  EXPECT_TRUE(make_prefix_key(completion(std::string(kPromptGuessBytes - 1, 'p')), "").set.is_zero());
}

TEST(PrefixKey, TokenIdPromptsAreChunkedToo) {
  GenerateRequest request = completion("");
  request.prompt = std::vector<int32_t>(kPromptGuessBytes / 4, 7);
  const auto ids = make_prefix_key(request, "");
  EXPECT_FALSE(ids.set.is_zero());
  const auto& values = std::get<std::vector<int32_t>>(request.prompt);
  const std::string same_bytes(reinterpret_cast<const char*>(values.data()), kPromptGuessBytes);
  EXPECT_NE(make_prefix_key(completion(same_bytes), "").set, ids.set);
}

TEST(PrefixKey, ChainIsBoundedAndStillCountsAllBytes) {
  std::vector<std::pair<Role, std::string>> turns{{Role::kSystem, kCard}};
  for (int i = 0; i < 2000; ++i) turns.push_back({i % 2 == 0 ? Role::kUser : Role::kAssistant, "0123456789"});
  const auto key = make_prefix_key(chat(turns), "");
  EXPECT_EQ(key.anchors.size(), kAnchorsMax);
  EXPECT_EQ(key.prompt_bytes, kCard.size() + 20'000);
  EXPECT_EQ(key.prefix_messages, 1);
}

}  // namespace prefix_key_test
}  // namespace troupe::route
