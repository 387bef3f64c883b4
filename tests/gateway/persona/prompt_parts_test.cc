#include "gateway/persona/prompt_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "tests/cpu_time.h"

namespace troupe {
namespace {

std::shared_ptr<const PersonaPrompt> compiled(const std::string& json) {
  auto definition = parse_persona(parse_json(json)->get_object(), "Mora");
  EXPECT_TRUE(definition.ok()) << definition.error().message;
  auto prompt = PersonaPrompt::compile(*std::move(definition));
  EXPECT_TRUE(prompt.ok()) << prompt.error().message;
  return prompt.ok() ? *prompt : nullptr;
}

std::string refusal(const std::string& json) {
  auto definition = parse_persona(parse_json(json)->get_object(), "Mora");
  auto prompt = PersonaPrompt::compile(*std::move(definition));
  return prompt.ok() ? "" : prompt.error().param;
}

ChatMessage said(Role role, std::string text) {
  ChatMessage message;
  message.role = role;
  message.content = std::move(text);
  return message;
}
ChatMessage user(std::string text) {
  return said(Role::kUser, std::move(text));
}
ChatMessage answer(std::string text) {
  return said(Role::kAssistant, std::move(text));
}

PersonaCall call_of(std::string_view json) {
  auto call = parse_persona_call(json);
  EXPECT_TRUE(call.ok()) << call.error().message;
  return *std::move(call);
}

// "role: text" a line; messages of the conversation by their number.
std::string shown(const PersonaPrompt& prompt, const std::vector<ChatMessage>& messages,
                  const PersonaCall& call, bool goes_on = false,
                  std::vector<const PersonaPrompt*> members = {}) {
  auto items = prompt.assemble({messages, goes_on, call, std::move(members)});
  if (!items.ok()) return items.error().param;
  std::string out;
  for (const PromptItem& item : *items) {
    if (item.message != PromptItem::kOwn) {
      absl::StrAppend(&out, "#", item.message, "\n");
    } else {
      absl::StrAppend(&out, std::string(role_name(item.role)).substr(0, 1), ": ", item.text, "\n");
    }
  }
  return out;
}

const PersonaCall kPlain = call_of(R"("Mora")");

TEST(PersonaPrompt, TheCardIsTheSameToTheByteForAllUsers) {
  const auto prompt = compiled(
      R"({"card": "You are {{char}}; {{user}} is a guest.", "examples": "{{user}}: Hi\n{{char}}: Ahoy."})");
  const std::vector<ChatMessage> messages{user("Hello")};
  const PersonaCall ann = call_of(R"({"name": "Mora", "user": "Ann", "variables": {"mood": "calm"}})");
  const PersonaCall ben = call_of(R"({"name": "Mora", "user": "Ben"})");
  const std::string first = prompt->assemble({messages, false, ann})->front().text;
  EXPECT_EQ(first, prompt->assemble({messages, false, ben})->front().text);
  EXPECT_EQ(first, prompt->card());
  EXPECT_EQ(first, "You are Mora; User is a guest.\n\nHow Mora speaks, by examples:\nUser: Hi\nMora: Ahoy.");
  EXPECT_EQ(shown(*prompt, messages, ann), absl::StrCat("s: ", first, "\ns: User is called Ann.\n#0\n"));
  EXPECT_EQ(prompt->warnings().size(), 2) << "of {{user}} in card and examples";
}

TEST(PersonaPrompt, ACardThatInsistsHasTheUsersOwnName) {
  const auto prompt = compiled(R"({"card": "{{user}} meets {{char}} in {{town}}.", "user_in_card": "each"})");
  EXPECT_FALSE(prompt->shares_card());
  EXPECT_EQ(shown(*prompt, {user("Hi")},
                  call_of(R"({"name": "Mora", "user": "Ann", "variables": {"town": "Rumosa"}})")),
            "s: Ann meets Mora in Rumosa.\n#0\n");
  EXPECT_EQ(shown(*prompt, {user("Hi")}, call_of(R"({"name": "Mora", "user": "Ann"})")),
            "persona.variables.town");
  EXPECT_TRUE(compiled(R"({"card": "You are {{char}}.", "user_in_card": "each"})")->shares_card());
}

TEST(PersonaPrompt, WhatWouldDifferIsRefusedInTheSharedTextByName) {
  EXPECT_EQ(refusal(R"({"card": "It is {{time}}."})"), "card");
  EXPECT_EQ(refusal(R"({"card": "x", "examples": "{{mood}}"})"), "examples");
  EXPECT_EQ(refusal(R"({"card": "x", "lore": [{"keys": ["a"], "content": "{{random:a,b}}"}]})"), "lore[0]");
  EXPECT_EQ(refusal(R"({"card": "x", "lore": [{"keys": [], "constant": true, "content": "{{mood}}"}]})"),
            "lore[0]");
  EXPECT_EQ(
      refusal(
          R"({"card": "x", "post_history": "It is {{time}}.", "lore": [{"keys": ["a"], "content": "{{mood}}"}]})"),
      "");
  EXPECT_EQ(compiled(R"({"card": "It is {{mood}}.", "variables": {"mood": "calm"}})")->card(), "It is calm.");
}

TEST(PersonaPrompt, LoreStandsBeforeTheUsersLastMessageAndInstructionsLast) {
  const auto prompt = compiled(R"({"card": "x", "post_history": "Brief, {{user}}!", "lore": [
      {"keys": ["ship"], "content": "The ship is old."}, {"keys": ["mate"], "content": "The mate is Tolin."},
      {"keys": ["sea"], "content": "Salt.", "position": "early"},
      {"keys": [], "constant": true, "content": "Always."}]})");
  EXPECT_EQ(prompt->card(), "x\n\nAlways.");
  const std::string card = "s: x\n\nAlways.\n";
  EXPECT_EQ(shown(*prompt, {user("Hi"), answer("Ahoy"), user("Your ship?")}, kPlain),
            card + "#0\n#1\ns: The ship is old.\n#2\ns: Brief, User!\n");
  EXPECT_EQ(shown(*prompt, {user("mate"), answer("sea"), user("ship")}, kPlain),
            card + "s: Salt.\n#0\n#1\ns: The ship is old.\nThe mate is Tolin.\n#2\ns: Brief, User!\n");
  EXPECT_EQ(shown(*prompt, {user("Hi")}, kPlain), card + "#0\ns: Brief, User!\n");
  EXPECT_EQ(shown(*prompt, {user("ship"), answer("It")}, kPlain, /*goes_on=*/true),
            card + "s: The ship is old.\n#0\ns: Brief, User!\n#1\n");
}

TEST(PersonaPrompt, DepthCountsFromTheUsersLastMessage) {
  const auto at = [](int depth) {
    const auto prompt = compiled(
        absl::StrCat(R"({"card": "x", "lore": [{"keys": ["ship"], "content": "!", "depth": )", depth, "}]}"));
    return shown(*prompt, {said(Role::kSystem, "s"), user("a"), answer("b"), user("ship")}, kPlain);
  };
  EXPECT_EQ(at(0), "s: x\n#0\n#1\n#2\n#3\ns: !\n");
  EXPECT_EQ(at(1), "s: x\n#0\n#1\n#2\ns: !\n#3\n");
  EXPECT_EQ(at(2), "s: x\n#0\n#1\ns: !\n#2\n#3\n");
  EXPECT_EQ(at(3), "s: x\n#0\ns: !\n#1\n#2\n#3\n");
  EXPECT_EQ(at(100), "s: x\n#0\ns: !\n#1\n#2\n#3\n") << "not among the instructions at the beginning";
}

TEST(PersonaPrompt, ToolCallsAndTheirResultsStayTogether) {
  const auto prompt = compiled(R"({"card": "x", "lore": [{"keys": ["ship"], "content": "!", "depth": 2}]})");
  const std::vector<ChatMessage> messages{user("a"), answer("call"), said(Role::kTool, "r1"),
                                          said(Role::kTool, "r2"), user("ship")};
  EXPECT_EQ(shown(*prompt, messages, kPlain), "s: x\n#0\ns: !\n#1\n#2\n#3\n#4\n");
}

TEST(PersonaPrompt, OnlyTheLastMessagesCallEntriesUp) {
  const auto prompt =
      compiled(R"({"card": "x", "lore_scan_messages": 2, "lore": [{"keys": ["ship"], "content": "!"}]})");
  EXPECT_EQ(shown(*prompt, {user("ship"), answer("b"), user("c")}, kPlain), "s: x\n#0\n#1\n#2\n");
  EXPECT_EQ(shown(*prompt, {user("a"), answer("ship"), user("c")}, kPlain), "s: x\n#0\n#1\ns: !\n#2\n");
}

TEST(PersonaPrompt, KeysThatAreThereAgainAndAgainCostNothing) {
  std::string lore, keys;
  for (int i = 0; i < 64; ++i) absl::StrAppend(&keys, i == 0 ? "" : ",", i % 2 == 0 ? "\"a\"" : "\"A\"");
  for (int i = 0; i < 900; ++i)
    absl::StrAppend(&lore, i == 0 ? "" : ",", R"({"content": "!", "keys": [)", keys, "]}");
  const auto prompt = compiled(absl::StrCat(R"({"card": "x", "lore": [)", lore, "]}"));
  const std::string text(64u << 10, 'a');  // no word of it is a key
  const double begin = cpu_seconds();
  EXPECT_EQ(shown(*prompt, {user(text)}, kPlain), "s: x\n#0\n");
  EXPECT_LT(cpu_seconds() - begin, 0.5);
}

TEST(PersonaPrompt, SecondaryKeysNarrow) {
  const auto there = [](const char* logic, const char* text) {
    const auto prompt = compiled(
        absl::StrCat(R"({"card": "x", "lore": [{"keys": ["ship"], "secondary_keys": ["storm", "night"],
        "secondary_logic": ")",
                     logic, R"(", "content": "!"}]})"));
    return shown(*prompt, {user(text)}, kPlain) != "s: x\n#0\n";
  };
  EXPECT_TRUE(there("and_any", "ship night"));
  EXPECT_FALSE(there("and_any", "ship"));
  EXPECT_FALSE(there("and_any", "storm night"));
  EXPECT_TRUE(there("and_all", "ship storm night"));
  EXPECT_FALSE(there("and_all", "ship storm"));
  EXPECT_TRUE(there("not_any", "ship"));
  EXPECT_FALSE(there("not_any", "ship storm"));
  EXPECT_TRUE(there("not_all", "ship storm"));
  EXPECT_FALSE(there("not_all", "ship storm night"));
}

// Eight entries, each of which calls up the next.
TEST(PersonaPrompt, EntriesCallUpOthersInBoundedRounds) {
  std::string lore;
  for (int i = 0; i < 8; ++i)
    absl::StrAppend(&lore, i > 0 ? "," : "", R"({"keys": ["k)", i, R"("], "content": "k)", i + 1,
                    R"(.", "order": )", i, "}");
  const auto plain = compiled(absl::StrCat(R"({"card": "x", "lore": [)", lore, "]}"));
  const auto deep = compiled(absl::StrCat(R"({"card": "x", "lore_recursive": true, "lore": [)", lore, "]}"));
  EXPECT_EQ(shown(*plain, {user("k0")}, kPlain), "s: x\ns: k1.\n#0\n");
  EXPECT_EQ(shown(*deep, {user("k0")}, kPlain), "s: x\ns: k1.\nk2.\nk3.\nk4.\n#0\n");
}

TEST(PersonaPrompt, EntriesHaveABudgetAndTheImportantOnesStay) {
  const auto prompt = compiled(R"({"card": "x", "lore_bytes": 5, "lore": [
      {"keys": ["a"], "content": "aaa"}, {"keys": ["b"], "content": "bbb", "importance": 1},
      {"keys": ["c"], "content": "cc"}]})");
  EXPECT_EQ(shown(*prompt, {user("a b c")}, kPlain), "s: x\ns: bbb\ncc\n#0\n");
}

TEST(PersonaPrompt, AGreetingBeginsTheConversationWhereTheRequestSaysSo) {
  const auto prompt = compiled(R"({"card": "x", "greetings": ["Ahoy, {{user}}.", "Hm."]})");
  EXPECT_EQ(shown(*prompt, {user("Hi")}, call_of(R"({"name": "Mora", "greeting": 1})")),
            "s: x\na: Hm.\n#0\n");
  EXPECT_EQ(shown(*prompt, {user("Hi")}, call_of(R"({"name": "Mora", "greeting": 2})")), "persona.greeting");
}

TEST(PersonaPrompt, InAGroupTheSpeakersCardIsFirstOrAllOfThemInOneOrder) {
  const auto mora = compiled(R"({"card": "{{char}} sails.", "name": "Mora", "post_history": "Be brief."})");
  const auto ruvo = compiled(R"({"card": "{{char}} mends {{user}}'s clocks.", "name": "Ruvo"})");
  const std::vector<const PersonaPrompt*> both{mora.get(), ruvo.get()};
  const std::vector<ChatMessage> messages{user("Hi"), answer("Ahoy.")};
  const PersonaCall swap = call_of(R"({"name": "mora", "others": ["ruvo"], "user": "Ann"})");
  // The card is to the byte that of the persona alone.
  EXPECT_EQ(shown(*mora, messages, swap, false, both),
            "s: Mora sails.\ns: Others who speak here: Ruvo.\ns: The user is called Ann.\n#0\n#1\n"
            "s: Be brief.\nWrite the next reply as Mora only.\n");
  const PersonaCall join = call_of(R"({"name": "ruvo", "others": ["mora"], "cards": "join"})");
  const std::string cards = "s: Mora:\nMora sails.\n\nRuvo:\nRuvo mends User's clocks.\n";
  EXPECT_EQ(shown(*ruvo, messages, join, false, both),
            cards + "#0\n#1\ns: Write the next reply as Ruvo only.\n");
  EXPECT_EQ(shown(*mora, messages, join, false, both),
            cards + "#0\n#1\ns: Be brief.\nWrite the next reply as Mora only.\n");
  // The user's note is the same, too.
  const std::string noted = cards + "s: User is called Ann.\n#0\n#1\n";
  for (const char* name : {"mora", "ruvo"}) {
    PersonaCall ann = join;
    ann.name = name;
    ann.user = "Ann";
    const PersonaPrompt& speaker = ann.name == "mora" ? *mora : *ruvo;
    EXPECT_EQ(shown(speaker, messages, ann, false, both).substr(0, noted.size()), noted);
  }
  const auto other = compiled(R"({"name": "Odo", "card": "Odo knows {{user}}.", "user_word": "Traveller"})");
  for (const PersonaPrompt* speaker : {ruvo.get(), other.get()}) {
    PersonaCall ann = join;
    ann.user = "Ann";
    EXPECT_THAT(shown(*speaker, messages, ann, false, {other.get(), ruvo.get()}),
                testing::HasSubstr("s: Traveller is called Ann.\nUser is called Ann.\n#0\n"));
  }
  // An answer that is gone on with stays last.
  EXPECT_EQ(shown(*ruvo, messages, join, true, both),
            cards + "#0\ns: Write the next reply as Ruvo only.\n#1\n");
  const auto own = compiled(R"({"card": "{{char}} knows {{user}}.", "name": "Zed", "user_in_card": "each"})");
  const PersonaCall ann = call_of(R"({"name": "mora", "others": ["zed"], "cards": "join", "user": "Ann"})");
  EXPECT_NE(shown(*mora, messages, ann, false, {mora.get(), own.get()}).find("Zed knows Ann."),
            std::string::npos);
}

TEST(PersonaPrompt, TheUsersNoteIsThePersonasToWordOrToLeaveOut) {
  const PersonaCall ann = call_of(R"({"name": "Mora", "user": "Ann", "variables": {"about": "a sailor"}})");
  EXPECT_EQ(shown(*compiled(R"({"card": "x", "user_note": "{{user}} is {{about}}."})"), {user("Hi")}, ann),
            "s: x\ns: Ann is a sailor.\n#0\n");
  EXPECT_EQ(shown(*compiled(R"({"card": "x", "user_note": ""})"), {user("Hi")}, ann), "s: x\n#0\n");
  EXPECT_EQ(shown(*compiled(R"({"card": "x"})"), {user("Hi")}, ann),
            "s: x\ns: The user is called Ann.\n#0\n");
  EXPECT_EQ(shown(*compiled(R"({"card": "x", "user_note": "{{user}} is {{about}}."})"), {user("Hi")}, kPlain),
            "persona.variables.about");
}

}  // namespace
}  // namespace troupe
