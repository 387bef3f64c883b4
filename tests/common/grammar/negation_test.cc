// Schemas that say what must not hold: not, oneOf whose alternatives overlap, if, schemas that depend on a
// member.

#include <gmock/gmock.h>

#include "tests/common/grammar/schema_fixture.h"

namespace troupe::grammar_test {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(
    NotOfOneKeyword, SchemaKeywords,
    ::testing::Values(
        Case{R"({"not":{"type":"string"}})", {"1", "null", "[]", "{}", "1.5"}, {R"("a")"}},
        Case{R"({"not":{"type":["integer","null"]}})",
             {"1.5", "true", R"("1")"},
             {"1", "null", "1.0", "-2.00"}},
        Case{R"({"not":{"type":"number"}})", {"true", "{}"}, {"1", "1.5", "1e3"}},
        Case{R"({"not":{"type":"string","nullable":true}})", {"1", "{}"}, {R"("a")", "null"}},
        Case{R"({"not":{"const":"a\"b"}})",
             {R"("a")", R"("")", R"("ab")", "1"},
             {R"("a\"b")", R"("a\u0022b")"}},
        Case{R"({"not":{"const":null}})", {"1", "false"}, {"null"}},
        Case{R"({"not":{"enum":[true,7,"x",[],{}]}})",
             {"false", "8", "-7", "7.5", "null", R"("y")", "[1]", R"({"a":1})"},
             {"true", "7", "7.0", R"("x")", "[]", "{}", "[ ]"}},
        Case{R"({"type":"integer","not":{"enum":[0,12]}})", {"1", "-12", "120", "11"}, {"0", "-0", "12"}},
        Case{R"({"type":"string","not":{"pattern":"^a"}})", {R"("")", R"("ba")"}, {R"("a")", R"("abc")"}},
        Case{R"({"not":{"pattern":"a"}})", {R"("b")"}, {R"("cab")", "1", "null"}},
        Case{R"({"type":"number","not":{"multipleOf":3}})",
             {"1", "4", "3.5", "-5", "3.01"},
             {"3", "0", "9", "3.0", "-6"}},
        Case{R"({"type":"number","not":{"multipleOf":0.5}})",
             {"0.3", "1.25", "0.51"},
             {"0.5", "2", "1.50", "3.0"}},
        Case{R"({"not":{"minimum":3}})", {"2", "-1", "2.9"}, {"3", "4", R"("a")"}},
        Case{R"({"not":{"exclusiveMaximum":3}})", {"3", "4.5"}, {"2.9", "0", "null"}},
        Case{R"({"not":{"maximum":3,"exclusiveMaximum":true}})", {"3", "4"}, {"2", "[]"}},
        Case{R"({"not":{"minLength":2}})", {R"("")", R"("宋")"}, {R"("ab")", "1"}},
        Case{R"({"not":{"maxItems":1}})", {"[1,2]"}, {"[]", "[1]", "1"}},
        Case{R"({"type":"object","not":{"required":["a"]}})",
             {"{}", R"({"b":1})"},
             {R"({"a":1})", R"({"b":1,"a":2})"}},
        Case{R"({"type":"object","not":{"required":["a","b"]}})",
             {"{}", R"({"a":1})", R"({"b":1})"},
             {R"({"a":1,"b":1})", R"({"b":1,"a":1})"}},
        Case{R"({"type":"object","not":{"properties":{"a":{"const":1},"b":true}}})",
             {R"({"a":2})", R"({"a":"1","c":1})"},
             {"{}", R"({"a":1})", R"({"b":1})"}},
        Case{R"({"properties":{"a":{"not":{}},"b":{"not":false}}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}}));

INSTANTIATE_TEST_SUITE_P(
    NotOfSchemas, SchemaKeywords,
    ::testing::Values(
        Case{R"({"not":{"not":{"type":"integer"}}})", {"1"}, {"1.5", "null"}},
        Case{R"({"not":{"anyOf":[{"type":"string"},{"minimum":3}]},"type":["string","integer"]})",
             {"2", "-3"},
             {"3", R"("a")"}},
        Case{R"({"not":{"allOf":[{"type":"integer"},{"minimum":3}]},"type":["string","integer"]})",
             {"2", R"("a")"},
             {"3", "4"}},
        Case{R"({"not":{"oneOf":[{"multipleOf":2},{"multipleOf":3}]},"type":"integer"})",
             {"1", "6", "5", "0"},
             {"2", "3", "9"}},
        Case{R"({"$defs":{"a":{"type":"string"}},"not":{"$ref":"#/$defs/a"}})", {"1"}, {R"("a")"}},
        Case{
            R"({"$defs":{"a":{"$ref":"#/$defs/b","description":"d"},"b":{"type":"string"}},
                "not":{"$ref":"#/$defs/a"}})",
            {"1"},
            {R"("a")"}},
        Case{R"({"not":{"type":"object","required":["a"],"description":"an object with a"}})",
             {"1", "{}", R"({"b":1})"},
             {R"({"a":1})"}},
        Case{R"({"not":{"type":"array","items":{"type":"string"}}})", {"1", "{}"}, {"[]", R"(["a"])"}},
        Case{R"({"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}},
                "type":"object","not":{"$ref":"#/$defs/n"}})",
             {"{}", R"({"n":1})", R"({"n":{"n":{}}})"},
             {}},
        Case{R"({"enum":[1,"a",[2]],"not":{"type":"array","items":{"type":"integer"}}})",
             {"1", R"("a")"},
             {"[2]"}},
        Case{R"({"enum":[1,2,3],"not":{"enum":[2]}})", {"1", "3"}, {"2"}}));

INSTANTIATE_TEST_SUITE_P(
    ExactlyOne, SchemaKeywords,
    ::testing::Values(
        Case{R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"1.5", "0.25"}, {"1", "2.0"}},
        Case{R"({"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}]})",
             {R"({"a":1})", R"({"b":1,"c":2})"},
             {"{}", R"({"a":1,"b":2})"}},
        Case{R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,
                "oneOf":[{"required":["a"]},{"required":["b"]},{"required":["c"]}]})",
             {R"({"a":1})", R"({"b":1})", R"({"c":1})"},
             {"{}", R"({"a":1,"c":2})", R"({"a":1,"b":1,"c":1})"}},
        Case{
            R"({"oneOf":[{"type":"object","properties":{"a":{},"b":{}},"required":["a"],
                           "additionalProperties":false},
                          {"type":"object","properties":{"a":{},"c":{}},"required":["a"],
                           "additionalProperties":false}]})",
            {R"({"a":1,"b":1})", R"({"a":1,"c":1})"},
            {R"({"a":1})", R"({"a":1,"b":1,"c":1})"}},
        Case{R"({"oneOf":[{"multipleOf":2},{"multipleOf":3}],"type":"integer"})",
             {"2", "3", "9"},
             {"6", "0", "1"}},
        Case{R"({"oneOf":[true,{"type":"string"}]})", {"1"}, {R"("a")"}}));

INSTANTIATE_TEST_SUITE_P(
    Conditions, SchemaKeywords,
    ::testing::Values(
        Case{R"({"type":"object","properties":{"kind":{"enum":["cat","dog"]}},"required":["kind"],
                "if":{"properties":{"kind":{"const":"cat"}}},"then":{"required":["lives"]},
                "else":{"required":["tricks"]}})",
             {R"({"kind":"cat","lives":9})", R"({"kind":"dog","tricks":1})"},
             {R"({"kind":"cat","tricks":1})", R"({"kind":"dog","lives":1})", R"({"kind":"cat"})"}},
        Case{R"({"if":{"type":"string"},"then":{"minLength":2}})", {"1", R"("ab")"}, {R"("a")"}},
        Case{R"({"if":{"type":"string"},"else":{"type":"integer"}})", {"1", R"("a")"}, {"null", "1.5"}},
        Case{R"({"if":{"type":"string"}})", {"1", R"("a")"}, {"01"}},
        Case{
            R"({"type":"object","dependentSchemas":{"a":{"required":["b"],"properties":{"a":{"type":"integer"}}}}})",
            {"{}", R"({"c":1})", R"({"a":1,"b":2})"},
            {R"({"a":1})", R"({"a":"x","b":2})"}},
        Case{R"({"type":"object","dependencies":{"a":{"maxProperties":1},"b":["c"]}})",
             {"{}", R"({"a":1})", R"({"b":1,"c":1})"},
             {R"({"a":1,"b":1})", R"({"b":1})"}},
        Case{R"({"format":"made-up","type":"string"})", {R"("anything")"}, {"1"}}));

TEST(Negation, WhatCannotBeNegatedIsNamed) {
  EXPECT_THAT(schema_error(R"({"not":{"format":"email"}})"),
              HasSubstr("#/not: what breaks 'format' cannot be enforced"));
  EXPECT_THAT(schema_error(R"({"not":{"items":{"type":"string"}}})"), HasSubstr("'items'"));
  EXPECT_THAT(schema_error(R"({"not":{"minLength":2,"unevaluatedProperties":false}})"),
              HasSubstr("'unevaluatedProperties'"));
  EXPECT_THAT(schema_error(R"({"type":"array","not":{"const":[1]}})"),
              HasSubstr("not: one array or object cannot be excluded"));
  EXPECT_THAT(schema_error(R"({"not":{"$ref":"#/nowhere"}})"), HasSubstr("#/not: its $ref"));
  EXPECT_THAT(schema_error(R"({"not":{"multipleOf":0}})"), HasSubstr("must be greater than 0"));
  EXPECT_THAT(schema_error(R"({"not":{"minItems":0}})"), HasSubstr("matches no text"));
  EXPECT_THAT(schema_error(R"({"not":1})"), HasSubstr("#/not: must be an object or a boolean"));
  EXPECT_THAT(schema_error(R"({"not":{"$ref":"#"}})"), ::testing::Not("")) << "it ends";
}

// Each of thirty alternatives excludes all others, by two keywords each.
TEST(Negation, ManyOverlappingAlternativesAreBounded) {
  std::string alternatives;
  for (int i = 0; i < 30; ++i)
    alternatives += (i == 0 ? "" : ",") +
                    ("{\"required\":[\"a" + std::to_string(i) + "\",\"b" + std::to_string(i) + "\"]}");
  const auto rules = rules_of_json_schema("{\"type\":\"object\",\"oneOf\":[" + alternatives + "]}", {});
  if (rules.ok()) {
    EXPECT_LT(rules->memory_bytes(), 40u << 20);
  } else {
    EXPECT_THAT(std::string(rules.status().message()), HasSubstr("too large"));
  }
}

}  // namespace troupe::grammar_test
