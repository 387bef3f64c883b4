// Arguments of calls in frames of their own: which texts a grammar of them has.

#include <gmock/gmock.h>

#include "common/grammar/front/front_ends.h"
#include "tests/common/grammar/grammar_fixture.h"

namespace troupe::grammar_test {

using ::testing::HasSubstr;

// <k=NAME>\nVALUE\n</k>, as a model writes them between tags.
static ArgumentLayout tags(std::vector<std::string> read_as_json = {}) {
  return {.name_opens = "<k=",
          .name_ends = ">",
          .value_opens = "",
          .value_ends = "</k>",
          .separator = "",
          .has_text = true,
          .read_as_json = std::move(read_as_json)};
}
static JsonOptions between_tags() {
  JsonOptions options;
  options.barred = {"</k>"};
  return options;
}

static ArgumentLayout python() {
  return {.name_opens = "", .name_ends = "=", .value_opens = "", .value_ends = "", .separator = ","};
}
static JsonOptions python_values() {
  JsonOptions options;
  options.notation = Notation::kPython;
  return options;
}

struct Written {
  std::string_view schema;
  std::vector<std::string_view> valid, invalid;
  std::vector<std::string> read_as_json = {};
};

static void check(const Written& each, const JsonOptions& options, const ArgumentLayout& layout) {
  auto rules = rules_of_arguments(each.schema, options, layout);
  ASSERT_TRUE(rules.ok()) << each.schema << ": " << rules.status();
  const auto grammar = CompiledGrammar::make(*std::move(rules), small_vocabulary());
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  for (const std::string_view text : each.valid) EXPECT_TRUE(matches(*grammar, text)) << each.schema << text;
  for (const std::string_view text : each.invalid)
    EXPECT_FALSE(matches(*grammar, text)) << each.schema << text;
}

TEST(Arguments, BetweenTagsAreTextOrJson) {
  const Written cases[] = {
      {R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"],"additionalProperties":false})",
       {"<k=a></k>", "<k=a>x <k= \"宋\n</k>\n<k=b>-5</k>", "\n<k=a>5</k><k=b>7</k>\n\n"},
       {"", "<k=b>5</k>", "<k=a>x</k><k=b>x</k>", "<k=a>x</k><k=a>x</k>", "<k=a>x</k>y</k>", "<k=c>x</k>",
        "<k=a>\xFF</k>"},
       {"b"}},
      {R"({"type":"object","properties":{"a":{"type":"string","maxLength":2,"pattern":"^[a-c\"宋]*$"}},"additionalProperties":false})",
       {"", "<k=a>a\"</k>", "<k=a>宋b</k>"},
       {"<k=a>abc</k>", "<k=a>d</k>", "<k=a>a\\\"</k>"}},
      {R"({"type":"object","properties":{"a":{"enum":["x","</k>","1"]},"b":{"format":"date","type":"string"}}})",
       {"<k=a>x</k>", "<k=a>1</k><k=b>2024-02-29</k>", "<k=other>x</k><k=other>y</k>"},
       {"<k=a></k></k>", "<k=a>y</k>", "<k=b>today</k>", "<k=b>2024-02-29</k><k=a>x</k>"}},
      // A text that could be another value is written as JSON's.
      {R"({"type":"object","properties":{"a":{"type":["string","null","number"]}},"additionalProperties":false})",
       {"<k=a>x5</k>", "<k=a>5</k>", "<k=a>\"5\"</k>", "<k=a>null</k>", "<k=a>nul</k>", "<k=a> </k>",
        "<k=a>\"<\\/k>\"</k>"},
       {"<k=a>5x</k>", "<k=a>\"5</k>", "<k=a>[</k>", "<k=a> None</k>", "<k=a>-</k>", "<k=a>\"</k>\"</k>"},
       {"a"}},
      {R"({"type":"object","properties":{"a":{"properties":{"</k>":{"const":"</k>"}},"type":"object"}},"additionalProperties":false})",
       {R"(<k=a>{"<\/k>":"<\/k>"}</k>)", R"(<k=a>{"x":["<\/k>"]}</k>)"},
       {R"(<k=a>{"</k>":"<\/k>"}</k>)", R"(<k=a>{"x":["</k>"]}</k>)", R"(<k=a>{"</k>":1}</k>)"},
       {"a"}},
      // Alternatives, of all arguments and of one.
      {R"({"type":"object","oneOf":[{"required":["a"],"properties":{"a":{"anyOf":[{"const":"x"},{"minLength":3,"type":"string"}]}}},)"
       R"({"properties":{"a":false}}],"additionalProperties":true,"maxProperties":1})",
       {"<k=a>x</k>", "<k=a>xyz</k>", "", "<k=b>y</k>"},
       {"<k=a>xy</k>", "<k=b>y</k><k=c>y</k>"}},
  };
  for (const Written& each : cases) check(each, between_tags(), tags(each.read_as_json));
}

TEST(Arguments, OfPythonAreItsLiterals) {
  const Written cases[] = {
      {R"({"type":"object","properties":{"a":{"type":["boolean","null"]},"b":{"type":"string","maxLength":2},"c":{}},"additionalProperties":false})",
       {"", "a=True", "a=None, b=\"x\\n\"", "b=\"宋\",c={\"x\": [False, 1.5, None, \"\"]}"},
       {"a=true", "a=null", "True", "a=True b=\"x\"", "b=\"\\/\"", "b=\"xyz\"", "b='x'", "c=[null]",
        "c=\"\\ud83d\\ude00\"", "a=True,", "b=\"\",a=None", "a=None,a=None"}},
      {R"({"type":"object","properties":{"a":{"const":[true,null,"\u2028"]}},"minProperties":1})",
       {"a=[True,None,\"\\u2028\"]", "other=False", "other=1,other2=2"},
       {"", "a=[true,null,\"\"]", "a=1", "5=1"}},
  };
  for (const Written& each : cases) check(each, python_values(), python());
}

TEST(Arguments, ThatCannotBeHeldToTheirSchemaAreNamed) {
  const auto fault = [](std::string_view schema, const ArgumentLayout& layout) {
    const auto rules = rules_of_arguments(schema, between_tags(), layout);
    return rules.ok() ? std::string("accepted") : std::string(rules.status().message());
  };
  EXPECT_THAT(fault(R"({"type":"object","patternProperties":{"^a":true}})", tags()),
              HasSubstr("#/patternProperties"));
  EXPECT_THAT(fault(R"({"type":"object","propertyNames":{"maxLength":3}})", tags()),
              HasSubstr("#/propertyNames"));
  EXPECT_THAT(fault(R"({"type":"object","enum":[{}]})", tags()), HasSubstr("#/enum"));
  EXPECT_THAT(fault(R"({"type":"object","properties":{"a<b":{"type":"string"}}})", tags()),
              HasSubstr("\"a<b\""));
  EXPECT_THAT(fault(R"({"type":"object","properties":{"a b":{}}})", python()), HasSubstr("\"a b\""));
  EXPECT_THAT(fault(R"({"type":"object","properties":{"a":{"type":"integer"}}})", tags()),
              HasSubstr("\"a\" are read as text"));
  EXPECT_THAT(fault(R"({"type":"object","properties":{"a":{"type":"string","format":"idn-email"}}})", tags()),
              HasSubstr("#/properties/a: format"));
  EXPECT_THAT(
      fault(R"__({"type":"object","properties":{"a":{"type":"string","pattern":"(?=x)"}}})__", tags()),
      HasSubstr("pattern"));
  // Alternatives of alternatives are spelled out, as far as that goes.
  std::string parts;
  for (int i = 0; i < 12; ++i)
    parts += std::string(i == 0 ? "" : ",") + R"({"anyOf":[{"minLength":1},{"maxLength":9}]})";
  EXPECT_THAT(
      fault(R"({"type":"object","properties":{"a":{"type":"string","allOf":[)" + parts + "]}}}", tags()),
      HasSubstr("too many alternatives"));
  EXPECT_THAT(fault(R"({"type":"object","allOf":[)" + parts + "]}", tags()), HasSubstr("too large"));
}

}  // namespace troupe::grammar_test
