#include "gateway/persona/late_text.h"

#include <gtest/gtest.h>

#include "gateway/persona/definition.h"
#include "tests/cpu_time.h"

namespace troupe {
namespace {

std::string rendered(std::string_view text, const PersonaVariables& given = {}) {
  auto compiled = LateText::compile("card", text, "Mora");
  if (!compiled.ok()) return compiled.error().message;
  std::string out;
  const std::string missing = compiled->append(out, "Ann", given, {{"mood", "calm"}});
  return missing.empty() ? out : "missing " + missing;
}

TEST(LateText, MacrosBecomeTheirValuesInEveryCaseAndSpelling) {
  EXPECT_EQ(rendered("{{char}} meets {{user}}."), "Mora meets Ann.");
  EXPECT_EQ(rendered("{{Char}} {{ USER }} <BOT> <user> <CHAR>"), "Mora Ann Mora Ann Mora");
  EXPECT_EQ(rendered("{{original}}a{{// a note}}b"), "ab");
  EXPECT_EQ(rendered("{{mood}}, {{Weather}}", {{"weather", "rain"}}), "calm, rain");
  EXPECT_EQ(rendered("{{mood}}", {{"mood", "cross"}}), "cross");
  EXPECT_EQ(rendered("{{weather}}"), "missing weather");
}

TEST(LateText, BracesThatAreNoMacroStayText) {
  for (const char* text : {"{\"a\": {\"b\": 1}}", "{{two words}}", "{{}}", "{{open", "a < b <tag>", "<", "{"})
    EXPECT_EQ(rendered(text), text);
}

TEST(LateText, WhatDiffersAtEachCallIsRefusedByName) {
  for (const char* text :
       {"{{random:a,b}}", "{{random::a::b}}", "{{roll:d6}}", "{{roll d6}}", "{{setvar::x::1}}", "{{pick}}"}) {
    auto compiled = LateText::compile("lore[3]", text, "Mora");
    ASSERT_FALSE(compiled.ok()) << text;
    EXPECT_EQ(compiled.error().param, "lore[3]");
    EXPECT_EQ(compiled.error().http_status, 400);
  }
}

TEST(LateText, TimeIsLinearInWhateverTheTextIs) {
  for (const char* part : {"{", "{{", "{{a", "{{ ", "{{a:}x", "{{//}x", "{{a}x", "{{a b", "<", "<USE"}) {
    for (const char* end : {"", "}}"}) {
      std::string text;
      while (text.size() + 2 < kPersonaBytesMax) {
        const size_t run = text.size() % 4096;  // what has an end has it within so many bytes
        text += run < 4000 ? part : run < 4080 ? " " : end;
        if (run >= 4080) text.resize(text.size() + 4096 - text.size() % 4096, ' ');
      }
      const double begin = cpu_seconds();
      rendered(text);
      EXPECT_LT(cpu_seconds() - begin, 1.0) << part << end;
    }
  }
}

TEST(LateText, SaysWhatItNeeds) {
  auto compiled = LateText::compile("card", "{{user}} {{b}} {{a}} {{b}}", "Mora");
  EXPECT_TRUE(compiled->names_user());
  EXPECT_EQ(compiled->variables(), (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(LateText::compile("card", "{{char}}", "Mora")->names_user());
}

}  // namespace
}  // namespace troupe
