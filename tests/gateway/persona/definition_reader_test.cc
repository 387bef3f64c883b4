#include "gateway/persona/definition_reader.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace troupe {
namespace {

ApiResult<PersonaDefinition> parsed(const std::string& json) {
  const auto body = parse_json(json);
  if (!body.ok()) return ApiError::internal(std::string(body.status().message()));
  return parse_persona(body->get_object(), "mora");
}

std::string fault(const std::string& json) {
  auto persona = parsed(json);
  return persona.ok() ? "" : persona.error().param;
}

TEST(PersonaDefinition, APlainTextIsACardAndTheNameItsCharacter) {
  auto persona = parsed(R"({"card": "You are {{char}}.", "examples": "x", "post_history": "Be brief."})");
  ASSERT_TRUE(persona.ok()) << persona.error().message;
  EXPECT_EQ(persona->card, "You are {{char}}.");
  EXPECT_EQ(persona->character, "mora");
  EXPECT_EQ(persona->post_history, "Be brief.");
  EXPECT_TRUE(persona->warnings.empty());
  EXPECT_EQ(parsed(R"({"card": "x", "name": "Captain Mora"})")->character, "Captain Mora");
}

TEST(PersonaDefinition, ErrorsNameTheField) {
  EXPECT_EQ(fault(R"({})"), "card");
  EXPECT_EQ(fault(R"({"card": ""})"), "card");
  EXPECT_EQ(fault(R"({"card": 3})"), "card");
  EXPECT_EQ(fault(absl::StrCat(R"({"card": ")", std::string(kPersonaBytesMax + 1, 'a'), "\"}")), "card");
  EXPECT_EQ(
      fault(R"({"card": "x", "lore": [{"keys": ["a"], "content": "b"}, {"keys": [], "content": "c"}]})"),
      "lore[1].keys");
  EXPECT_EQ(fault(R"({"card": "x", "lore": [{"keys": ["a"]}]})"), "lore[0].content");
  EXPECT_EQ(fault(R"({"card": "x", "lore": [{"keys": ["a"], "content": "b", "depth": -1}]})"),
            "lore[0].depth");
  EXPECT_EQ(fault(R"({"card": "x", "lore": [{"keys": ["a", 3], "content": "b"}]})"), "lore[0].keys[1]");
  EXPECT_EQ(fault(R"({"card": "x", "lore": [{"keys": ["a"], "content": "b", "position": "top"}]})"),
            "lore[0].position");
  EXPECT_EQ(fault(absl::StrCat(R"({"card": "x", "lore": [{"keys": [")",
                               std::string(kLoreKeyBytesMax + 1, 'k'), R"("], "content": "b"}]})")),
            "lore[0].keys[0]");
  EXPECT_EQ(fault(R"({"card": "x", "user_in_card": "both"})"), "user_in_card");
  EXPECT_EQ(fault(R"({"card": "x", "variables": {"user": "y"}})"), "variables.user");
  EXPECT_EQ(fault(R"({"card": {"spec": "chara_card_v9", "data": {}}})"), "card.spec");
  EXPECT_EQ(fault(R"({"card": {"description": "x"}})"), "card.name");
  EXPECT_EQ(fault(R"({"card": {"spec": "chara_card_v2", "data": {"name": "M", "character_book": {"entries": [
      {"keys": ["a"], "content": "b"}, {"keys": ["/a+/"], "content": "b", "use_regex": true}]}}}})"),
            "card.data.character_book.entries[1].use_regex");
}

TEST(PersonaDefinition, AFieldThatIsUnknownIsSaid) {
  auto persona = parsed(R"({"card": "x", "post_histroy": "y", "pin": true})");
  ASSERT_EQ(persona->warnings.size(), 1);
  EXPECT_NE(persona->warnings[0].find("post_histroy"), std::string::npos);
}

TEST(PersonaDefinition, ACharacterCardsFieldsBecomeItsParts) {
  auto persona = parsed(R"({"card": {"spec": "chara_card_v2", "spec_version": "2.0", "data": {
      "name": "Mora", "description": "A captain.", "personality": "stern", "scenario": "At sea.",
      "first_mes": "Ahoy.", "alternate_greetings": ["Hello."], "mes_example": "<START>\n{{user}}: Hi",
      "system_prompt": "Play {{char}}.", "post_history_instructions": "Stay in role.",
      "creator_notes": "none",
      "character_book": {"scan_depth": 2, "token_budget": 100, "recursive_scanning": true,
       "extensions": {}, "entries": [
        {"keys": ["ship"], "secondary_keys": ["storm"], "selective": true, "enabled": true,
         "content": "The ship is old.", "insertion_order": 5, "position": "before_char",
         "extensions": {"position": 4, "depth": 3, "selectiveLogic": 2}},
        {"keys": [], "constant": true, "content": "The sea is salt.", "enabled": true,
         "position": "before_char",
         "extensions": {}},
        {"keys": ["x"], "content": "off", "enabled": false, "insertion_order": 1, "extensions": {}},
        {"keys": ["mate"], "content": "@@depth 2\n@@role user\nThe mate is Tolin.", "enabled": true,
         "extensions": {"probability": 50}}]}}}})");
  ASSERT_TRUE(persona.ok()) << persona.error().message;
  EXPECT_EQ(persona->character, "Mora");
  EXPECT_EQ(persona->card, "Play {{char}}.\nA captain.\n{{char}}'s personality: stern\nScenario: At sea.");
  EXPECT_EQ(persona->examples, "<START>\n{{user}}: Hi");
  EXPECT_EQ(persona->greetings, (std::vector<std::string>{"Ahoy.", "Hello."}));
  EXPECT_EQ(persona->post_history, "Stay in role.");
  EXPECT_EQ(persona->lore_scan_messages, 2);
  EXPECT_EQ(persona->lore_bytes, 400);
  EXPECT_TRUE(persona->lore_recursive);
  ASSERT_EQ(persona->lore.size(), 3);
  EXPECT_EQ(persona->lore[0].place, LorePlace::kLate);
  EXPECT_EQ(persona->lore[0].depth, 3);
  EXPECT_EQ(persona->lore[0].secondary, SecondaryKeys::kNotAny);
  EXPECT_EQ(persona->lore[1].place, LorePlace::kBeforeCard);
  EXPECT_EQ(persona->lore[2].content, "The mate is Tolin.");
  EXPECT_EQ(persona->lore[2].depth, 2);
  ASSERT_EQ(persona->warnings.size(), 2) << "the role and the probability";
  EXPECT_NE(persona->warnings[0].find("probability"), std::string::npos);
  EXPECT_NE(persona->warnings[1].find("role"), std::string::npos);
}

TEST(PersonaDefinition, TheBodysOwnFieldsGoBeforeTheCards) {
  auto persona = parsed(
      R"({"card": {"name": "Mora", "description": "A captain.", "mes_example": "old"}, "examples": "new", "name": "M"})");
  EXPECT_EQ(persona->examples, "new");
  EXPECT_EQ(persona->character, "M");
}

TEST(PersonaDefinition, WhatIsToBeDoneWithItIsNoPartOfIt) {
  const auto with = parse_json(R"({"card": "x", "pin": true, "ttl_s": 60, "model": "m", "prefill": false})");
  const auto without = parse_json(R"({"card": "x"})");
  EXPECT_EQ(definition_json(with->get_object()), definition_json(without->get_object()));
  auto delivery = parse_delivery(with->get_object());
  EXPECT_TRUE(delivery->pin);
  EXPECT_FALSE(delivery->prefill);
  EXPECT_EQ(delivery->ttl_s, 60);
  EXPECT_EQ(delivery->model, "m");
}

TEST(PersonaCall, IsANameOrAnObject) {
  EXPECT_EQ(parse_persona_call(R"("mora")")->name, "mora");
  auto call = parse_persona_call(
      R"({"name": "宋江", "version": 3, "user": "Ann", "variables": {"Mood": "calm", "n": 3}, "greeting": 0})");
  ASSERT_TRUE(call.ok()) << call.error().message;
  EXPECT_EQ(call->name, "宋江");
  EXPECT_EQ(call->version, 3);
  EXPECT_EQ(call->user, "Ann");
  EXPECT_EQ(call->variables.at("mood"), "calm");
  EXPECT_EQ(call->variables.at("n"), "3");
  EXPECT_EQ(call->greeting, 0);
  EXPECT_TRUE(call->others.empty() && !call->joins_cards);
  auto group = parse_persona_call(R"({"name": "mora", "others": ["zed", "ruvo", "zed"], "cards": "join"})");
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ(group->others, (std::vector<std::string>{"ruvo", "zed"}));
  EXPECT_TRUE(group->joins_cards);
}

TEST(PersonaCall, ErrorsNameTheField) {
  const auto param = [](std::string_view json) { return parse_persona_call(json).error().param; };
  EXPECT_EQ(param("3"), "persona");
  EXPECT_EQ(param(R"("a/b")"), "persona");
  EXPECT_EQ(param(R"({"user": "Ann"})"), "persona.name");
  EXPECT_EQ(param(R"({"name": "a", "version": 0})"), "persona.version");
  EXPECT_EQ(param(R"({"name": "a", "version": 1, "others": ["b"], "cards": "join"})"), "persona.version");
  EXPECT_EQ(param(R"({"name": "a", "variables": {"x": [1]}})"), "persona.variables.x");
  EXPECT_EQ(param(R"({"name": "a", "vars": {}})"), "persona.vars");
  EXPECT_EQ(param(R"({"name": "a", "others": ["b", "a"]})"), "persona.others");
  EXPECT_EQ(param(R"({"name": "a", "others": "b"})"), "persona.others");
  EXPECT_EQ(param(R"({"name": "a", "others": ["b"], "cards": "all"})"), "persona.cards");
}

}  // namespace
}  // namespace troupe
