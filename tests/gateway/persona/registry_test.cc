#include "gateway/persona/registry.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "gateway/persona/record.h"

namespace troupe {
namespace {

PersonaVersion version_of(std::string_view card) {
  PersonaVersion version;
  version.definition = absl::StrCat("{\"card\":\"", to_absl(card), "\"}");
  return version;
}

struct Book {
  PersonaRegistry registry;

  ApiResult<PersonaRegistry::Change> put(std::string_view owner, std::string_view name,
                                         std::string_view card) {
    auto change = registry.propose(owner, name, version_of(card));
    if (!change.ok()) return change;
    Persona persona = change->persona;
    EXPECT_TRUE(compile_versions(persona).ok());
    registry.adopt(std::move(persona));
    return change;
  }
  std::string card(std::string_view owner, std::string name, std::optional<int64_t> version = {}) {
    PersonaCall call;
    call.name = std::move(name);
    call.version = version;
    auto chosen = registry.choose(owner, call);
    return chosen.ok() ? chosen->version->prompt->card() : chosen.error().param;
  }
};

TEST(PersonaRegistry, AnotherContentIsAnotherVersionAndOldOnesAreKept) {
  Book book{PersonaRegistry({.per_owner = 10, .versions = 2})};
  EXPECT_TRUE(book.put("a", "mora", "one")->is_new_version);
  EXPECT_FALSE(book.put("a", "mora", "one")->is_new_version);
  EXPECT_EQ(book.put("a", "mora", "two")->persona.versions.back().number, 2);
  EXPECT_EQ(book.card("a", "mora"), "two");
  EXPECT_EQ(book.card("a", "mora", 1), "one");
  book.put("a", "mora", "three");
  EXPECT_EQ(book.card("a", "mora", 1), "persona.version") << "two are kept";
  EXPECT_EQ(book.card("a", "mora", 2), "two");
  EXPECT_EQ(book.put("a", "mora", "one")->persona.versions.back().number, 4);
}

TEST(PersonaRegistry, AnOwnersPersonasAreNoOthers) {
  Book book{PersonaRegistry({})};
  book.put("a", "mora", "of a");
  EXPECT_EQ(book.card("b", "mora"), "persona");
  book.put("", "mora", "of all");
  EXPECT_EQ(book.card("b", "mora"), "of all");
  EXPECT_EQ(book.card("a", "mora"), "of a");
  EXPECT_EQ(book.registry.visible_to("a").size(), 1);
  EXPECT_EQ(book.registry.visible_to("a")[0]->owner, "a");
  book.registry.erase("a", "mora");
  EXPECT_EQ(book.card("a", "mora"), "of all");
}

TEST(PersonaRegistry, BoundsAreKept) {
  Book book{PersonaRegistry({.per_owner = 1, .versions = 4, .text_bytes = 64})};
  EXPECT_TRUE(book.put("a", "mora", "x").ok());
  EXPECT_EQ(book.put("a", "tubo", "x").error().code, "too_many_personas");
  EXPECT_EQ(book.put("b", "tubo", std::string(64, 'x')).error().code, "too_many_personas");
  EXPECT_TRUE(book.put("b", "tubo", "x").ok());
  book.registry.erase("a", "mora");
  EXPECT_TRUE(book.put("a", "tubo", "x").ok()) << "its room is given back";
  EXPECT_EQ(book.registry.size(), 2);
  EXPECT_EQ(book.registry.bytes(), 2 * static_cast<int64_t>(4 + version_of("x").definition.size()));
}

TEST(PersonaRegistry, TheOperatorsAreNotChanged) {
  Book book{PersonaRegistry({})};
  Persona persona;
  persona.name = "mora";
  persona.from_folder = true;
  persona.versions.push_back(version_of("file"));
  ASSERT_TRUE(compile_versions(persona).ok());
  book.registry.adopt(persona);
  EXPECT_EQ(book.put("", "mora", "x").error().code, "persona_read_only");
  EXPECT_TRUE(book.put("a", "mora", "x").ok()) << "an owner's own goes before it";
}

TEST(PersonaRegistry, EtagsTellVersionsApart) {
  PersonaVersion one = version_of("x"), two = version_of("x"), other = version_of("y");
  two.number = 2;
  EXPECT_NE(one.etag(), two.etag());
  EXPECT_NE(one.etag(), other.etag());
  EXPECT_EQ(one.etag(), version_of("x").etag());
}

TEST(PersonaRecord, ComesBackAsItWas) {
  Book book{PersonaRegistry({})};
  book.put("a", "宋江", "one");
  auto change = book.put("a", "宋江", "two \\\"quoted\\\"");
  const auto back = parse_persona_record(persona_record_json(change->persona));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->owner, "a");
  EXPECT_EQ(back->name, "宋江");
  ASSERT_EQ(back->versions.size(), 2);
  EXPECT_EQ(back->versions[1].etag(), change->persona.versions[1].etag());
  EXPECT_EQ(back->versions[1].prompt->card(), "two \"quoted\"");
}

TEST(PersonaRecord, OldVersionsGoWhereThereIsNoRoom) {
  Persona persona;
  persona.name = "mora";
  for (int i = 1; i <= 8; ++i) {
    persona.versions.push_back(version_of(std::string(200'000, 'x')));
    persona.versions.back().number = i;
  }
  const auto back = parse_persona_record(persona_record_json(persona));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->versions.size(), 6);
  EXPECT_EQ(back->versions.back().number, 8);
}

TEST(PersonaRecord, WhatIsBrokenIsRefused) {
  for (
      const char* text :
      {"", "[]", "{}", R"({"name":"a/b","versions":[]})", R"({"name":"a","versions":[]})",
       R"({"name":"a","versions":[{"number":1,"definition":{}}]})",
       R"({"name":"a","versions":[{"number":2,"definition":{"card":"x"}},{"number":1,"definition":{"card":"x"}}]})"})
    EXPECT_FALSE(parse_persona_record(text).ok()) << text;
}

}  // namespace
}  // namespace troupe
