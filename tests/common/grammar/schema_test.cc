#include <gmock/gmock.h>

#include "tests/common/grammar/schema_fixture.h"

namespace troupe::grammar_test {

using ::testing::HasSubstr;

TEST_P(SchemaKeywords, AcceptWhatIsValid) {
  const auto grammar = schema_grammar(GetParam().schema);
  for (const std::string_view text : GetParam().valid)
    EXPECT_TRUE(matches(grammar, text)) << GetParam().schema << " " << text;
  for (const std::string_view text : GetParam().invalid)
    EXPECT_FALSE(matches(grammar, text)) << GetParam().schema << " " << text;
}

INSTANTIATE_TEST_SUITE_P(
    Types, SchemaKeywords,
    ::testing::Values(
        Case{"true",
             {"1", "[]", "{\"a\": [null,{}]}", "\"x\"", "-1.5e3", "false"},
             {"", "nul", "[1,]", "{a:1}", "01"}},
        Case{"{}", {"{}", "[ 1 , 2 ]", "{ \"a\" : 1 }"}, {" 1", "1 "}},
        Case{R"({"type":"string"})", {R"("")", R"("a\"b")", R"("宋\u00e9")"}, {"1", "\"a", "\"\n\""}},
        Case{
            R"({"type":"integer"})", {"0", "-5", "123"}, {"1.0", "1e3", "-", "00", "1234567890123456789012"}},
        Case{R"({"type":"number"})", {"0", "-5", "1.50", "1e-3"}, {"1.", ".5", "+1", "1e999"}},
        Case{R"({"type":["null","boolean"]})", {"null", "true", "false"}, {"0", "\"\""}},
        Case{R"({"type":"string","nullable":true})", {"null", "\"\""}, {"1"}},
        Case{R"({"type":"array"})", {"[]", "[1,\"a\",[]]"}, {"{}", "[1 2]"}},
        Case{R"({"type":"object"})", {"{}", R"({"a":1,"b":{}})"}, {"[]", "{,}"}},
        Case{R"({"const":{"a":[1,2.5,null,"x\n"]}})",
             {R"({"a":[1,2.5,null,"x\n"]})", R"({ "a" : [ 1 , 2.5,null,"x\n"] })"},
             {R"({"a":[1,2.5,null]})"}},
        Case{R"({"enum":["a",1,true,null,"宋"],"type":["string","null"]})",
             {"\"a\"", "null", "\"宋\""},
             {"1", "true", "\"b\""}},
        Case{R"({"enum":[1,5,10],"minimum":5})", {"5", "10"}, {"1"}}));

INSTANTIATE_TEST_SUITE_P(
    Scalars, SchemaKeywords,
    ::testing::Values(
        Case{R"({"type":"integer","minimum":-3,"exclusiveMaximum":12})",
             {"-3", "0", "11", "9"},
             {"-4", "12", "-0", "100"}},
        Case{R"({"type":"integer","minimum":10})", {"10", "99", "100", "123456"}, {"9", "-10", "1"}},
        Case{R"({"type":"integer","maximum":-10})", {"-10", "-11", "-100"}, {"-9", "10", "0"}},
        Case{R"({"type":"number","minimum":0.5,"maximum":2.25})",
             {"0.5", "1", "2.25", "2.2", "0.500"},
             {"0.4", "2.26", "3", "-1", "0.49"}},
        Case{R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
             {"0.1", "0.999", "0.0001"},
             {"0", "1", "0.0", "-0.5", "1.0"}},
        Case{R"({"type":"number","minimum":-1.5,"maximum":-0.5})",
             {"-1", "-1.5", "-0.5", "-0.75"},
             {"-1.6", "-0.4", "1", "0"}},
        Case{R"({"type":"integer","multipleOf":7,"minimum":1})", {"7", "70", "14"}, {"0", "8", "71"}},
        Case{R"({"type":"number","multipleOf":0.25})",
             {"0", "0.25", "-1.5", "2", "1.50", "0.75"},
             {"0.3", "1.1", "0.255"}},
        Case{R"({"minimum":5})", {"5", "\"x\"", "null"}, {"4"}},
        Case{R"({"minimum":0,"exclusiveMinimum":true,"type":"integer"})", {"1"}, {"0"}},
        Case{R"({"type":"string","minLength":2,"maxLength":3})",
             {"\"ab\"", "\"宋江é\"", R"("\n\u00e9")"},
             {"\"a\"", "\"abcd\"", "\"\""}},
        Case{R"({"type":"string","pattern":"^a+$"})", {"\"aa\""}, {"\"\"", "\"ab\""}},
        Case{R"({"type":"string","pattern":"b"})", {"\"abc\"", "\"b\""}, {"\"ac\""}},
        Case{R"({"type":"string","pattern":"^[a-z]+$","maxLength":3})", {"\"abc\""}, {"\"abcd\"", "\"\""}},
        Case{R"({"type":"string","pattern":"^\"$"})", {R"("\"")"}, {"\"\""}},
        Case{R"({"allOf":[{"type":"string","pattern":"^a"},{"pattern":"z$"}]})",
             {"\"az\"", "\"abz\""},
             {"\"a\"", "\"z\""}}));

INSTANTIATE_TEST_SUITE_P(
    Formats, SchemaKeywords,
    ::testing::Values(
        Case{R"({"type":"string","format":"date"})",
             {"\"2024-02-29\"", "\"1999-12-31\""},
             {"\"2023-02-29\"", "\"1900-02-29\"", "\"0000-01-01\"", "\"2024-13-01\""}},
        Case{R"({"type":"string","format":"date-time"})",
             {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+02:00\""},
             {"\"2024-01-01\"", "\"2024-01-01T24:00:00Z\""}},
        Case{R"({"type":"string","format":"time"})", {"\"12:00:00Z\""}, {"\"12:00\""}},
        Case{R"({"type":"string","format":"uuid"})",
             {"\"123e4567-e89b-12d3-a456-426614174000\""},
             {"\"123e4567\""}},
        Case{R"({"type":"string","format":"ipv4"})",
             {"\"192.168.0.1\"", "\"0.0.0.0\""},
             {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""}},
        Case{R"({"type":"string","format":"ipv6"})",
             {"\"::1\"", "\"::\"", "\"1::\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\""},
             {"\"1:2\"", "\"1:2:3:4:5:6:7:8:9\"", "\"1::2::3\"", "\":1\""}},
        Case{R"({"type":"string","format":"email"})", {"\"a.b@c.de\""}, {"\"a@\"", "\"@b\""}},
        Case{R"({"type":"string","format":"hostname"})", {"\"a-b.example\""}, {"\"-a\"", "\"a..b\""}},
        Case{R"({"type":"string","format":"uri"})",
             {"\"https://example.com/a?b=c#d\"", "\"urn:a:b\""},
             {"\"//x\"", "\"a b:c\""}},
        Case{R"({"type":"string","format":"duration"})",
             {"\"P1DT2H\"", "\"PT5M\"", "\"P3W\""},
             {"\"P\"", "\"1D\"", "\"PT\""}}));

INSTANTIATE_TEST_SUITE_P(
    Arrays, SchemaKeywords,
    ::testing::Values(
        Case{
            R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"[\"a\"]", "[1,]"}},
        Case{R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
             {"[1,2]", "[1,2,3]"},
             {"[1]", "[]", "[1,2,3,4]"}},
        Case{
            R"({"type":"array","items":{"type":"array"},"minItems":1})", {"[[]]", "[[],[1]]"}, {"[]", "[1]"}},
        Case{
            R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"boolean"}})",
            {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",true,false]"},
            {"[\"a\"]", "[1,2]", "[1,\"a\",1]"}},
        Case{R"({"type":"array","items":[{"const":1}],"additionalItems":false,"minItems":1})",
             {"[1]"},
             {"[]", "[1,1]", "[2]"}},
        Case{R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"minItems":1,"maxItems":1})",
             {"[1]"},
             {"[]", "[1,2]"}},
        Case{R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
        Case{R"({"type":"array","uniqueItems":false,"maxItems":0})", {"[]"}, {"[1]"}},
        Case{R"({"allOf":[{"items":{"minimum":3}},{"items":{"type":"integer"}}],"type":"array"})",
             {"[3]"},
             {"[2]", "[\"a\"]"}}));

INSTANTIATE_TEST_SUITE_P(
    Objects, SchemaKeywords,
    ::testing::Values(
        Case{
            R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"required":["b"],"additionalProperties":false})",
            {R"({"a":1,"b":2})", R"({"b":2})", R"({ "a" : 1 , "b" : 2 })"},
            {"{}", R"({"a":1})", R"({"b":2,"a":1})", R"({"b":2,"c":1})", R"({"b":2,"b":2})"}},
        Case{R"({"type":"object","properties":{"a":{"const":1}}})",
             {"{}", R"({"a":1})", R"({"x":null})", R"({"a":1,"x":[],"y":2})"},
             {R"({"a":2})", R"({"a":1,"a":1})", R"({"x":1,"a":1})", R"({"\u0061":2})"}},
        Case{
            R"({"properties":{"a":{"const":1},"b":false},"required":["a"],"type":"object","additionalProperties":{"type":"null"}})",
            {R"({"a":1})", R"({"a":1,"c":null})"},
            {R"({"a":1,"b":1})", R"({"a":1,"c":1})", "{}"}},
        Case{R"({"type":"object","required":["x"],"additionalProperties":{"type":"integer"}})",
             {R"({"x":1})", R"({"x":1,"y":2})"},
             {"{}", R"({"y":2})", R"({"x":"a"})"}},
        Case{
            R"({"type":"object","patternProperties":{"^s_":{"type":"string"},"_n$":{"enum":["q",1]}},"additionalProperties":false})",
            {R"({"s_a":"x"})", R"({"a_n":1})", R"({"s_n":"q"})", "{}"},
            {R"({"s_a":1})", R"({"b":1})", R"({"s_n":1})", R"({"s_n":"x"})"}},
        Case{
            R"({"type":"object","properties":{"s_x":{"maxLength":1}},"patternProperties":{"^s_":{"type":"string"}}})",
            {R"({"s_x":"a"})", R"({"z":1})"},
            {R"({"s_x":1})", R"({"s_x":"ab"})"}},
        Case{R"({"type":"object","required":["a"],"minProperties":2,"maxProperties":3})",
             {R"({"a":1,"b":1})", R"({"a":1,"b":1,"c":1})"},
             {"{}", R"({"a":1})", R"({"a":1,"a":1})", R"({"a":1,"b":1,"c":1,"d":1})"}},
        Case{R"({"type":"object","minProperties":1})", {R"({"a":1})"}, {"{}"}},
        Case{
            R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"minProperties":2,"maxProperties":2})",
            {R"({"a":1,"b":1})", R"({"a":1,"c":1})", R"({"b":1,"c":1})"},
            {R"({"a":1})", R"({"a":1,"b":1,"c":1})", "{}"}},
        Case{R"({"type":"object","propertyNames":{"pattern":"^[ab]$"},"additionalProperties":{"const":1}})",
             {"{}", R"({"a":1,"b":1})"},
             {R"({"c":1})"}},
        Case{R"({"type":"object","propertyNames":{"enum":["k"]},"properties":{"j":{}}})",
             {R"({"k":1})"},
             {R"({"j":1})"}},
        Case{
            R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,"dependentRequired":{"a":["b"]}})",
            {"{}", R"({"b":1})", R"({"a":1,"b":1})"},
            {R"({"a":1})"}},
        Case{
            R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"a":{"minimum":3},"b":{"const":0}},"required":["a"]}],"type":"object"})",
            {R"({"a":3})", R"({"a":4,"b":0})"},
            {R"({"a":2})", "{}", R"({"a":"x"})"}},
        Case{R"({"type":"object","properties":{"a":{"const":1}},"unevaluatedProperties":false})",
             {"{}", R"({"a":1})"},
             {R"({"b":1})"}},
        Case{
            R"({"type":"object","properties":{"":{"const":1},"a\"b":{"const":2}},"additionalProperties":false})",
            {R"({"":1,"a\"b":2})"},
            {R"({"a":2})"}}));

INSTANTIATE_TEST_SUITE_P(
    Combinations, SchemaKeywords,
    ::testing::Values(
        Case{R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
             {"1", "\"a\""},
             {"null", "\"ab\""}},
        Case{R"({"type":"integer","anyOf":[{"minimum":5},{"maximum":2}]})",
             {"5", "2", "-9"},
             {"3", "4", "null"}},
        Case{R"({"anyOf":[{"const":1},{"const":2}],"oneOf":[{"const":2},{"const":3}]})", {"2"}, {"1", "3"}},
        Case{
            R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},
                           "required":["k","v"]},
                          {"type":"object","properties":{"k":{"const":"b"},"v":{"type":"null"}},
                           "required":["k","v"]}]})",
            {R"({"k":"a","v":1})", R"({"k":"b","v":null})"},
            {R"({"k":"a","v":null})", R"({"k":"c","v":1})"}},
        Case{
            R"({"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"^b"},{"type":"integer","maximum":3},{"type":"integer","minimum":4}]})",
            {"\"a\"", "\"bc\"", "3", "4"},
            {"\"c\"", "null"}},
        Case{
            R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},
                "required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/n"})",
            {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
            {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
        Case{
            R"({"definitions":{"a/b":{"const":1},"p%q":{"const":2}},"anyOf":[{"$ref":"#/definitions/a~1b"},{"$ref":"#/definitions/p%25q"}]})",
            {"1", "2"},
            {"3"}},
        Case{
            R"({"$id":"http://x/root.json","$defs":{"a":{"$id":"a.json","const":1},"b":{"$anchor":"here","const":2}},
                "anyOf":[{"$ref":"a.json"},{"$ref":"#here"},{"$ref":"http://x/a.json"}]})",
            {"1", "2"},
            {"3"}},
        Case{R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
        Case{
            R"({"title":"t","description":"d","default":1,"examples":[2],"$comment":"c","deprecated":true,"x-own":1,"$schema":"s","const":3})",
            {"3"},
            {"1"}}));

TEST(Schema, NamesTheKeywordThatCannotBeEnforced) {
  EXPECT_THAT(schema_error(R"({"properties":{"a/b":{"uniqueItems":true}}})"),
              HasSubstr("#/properties/a~1b/uniqueItems: this keyword cannot be enforced"));
  EXPECT_THAT(schema_error(R"({"type":"object","minProperties":2})"),
              HasSubstr("#/minProperties: cannot be enforced past 1"));
  EXPECT_THAT(
      schema_error(R"({"patternProperties":{"^a":{}},"additionalProperties":false,"minProperties":2})"),
      HasSubstr("#/minProperties"));
  EXPECT_THAT(schema_error(R"({"contains":{}})"), HasSubstr("#/contains:"));
  EXPECT_THAT(schema_error(R"({"unevaluatedItems":false})"), HasSubstr("#/unevaluatedItems:"));
  EXPECT_THAT(schema_error(R"({"allOf":[{}],"unevaluatedProperties":false})"),
              HasSubstr("#/unevaluatedProperties: cannot be enforced beside allOf"));
  EXPECT_THAT(schema_error(R"({"$dynamicRef":"#a"})"), HasSubstr("#/$dynamicRef:"));
  EXPECT_THAT(schema_error(R"({"type":"string","format":"regex"})"),
              HasSubstr("format: 'regex' cannot be enforced"));
  EXPECT_THAT(schema_error(R"({"type":"string","pattern":"(?=a)b"})"),
              HasSubstr("pattern: look-around is not supported"));
  EXPECT_THAT(schema_error(R"({"patternProperties":{"\\bx":{}}})"),
              HasSubstr("patternProperties '\\bx': word boundaries"));
  EXPECT_THAT(schema_error(R"({"oneOf":[{"format":"email"},{"format":"hostname"}]})"),
              HasSubstr("#/oneOf: alternatives 0 and 1 may both hold, so that exactly one does cannot be "
                        "enforced: what breaks 'format' cannot be enforced"));
  EXPECT_THAT(schema_error(R"({"$ref":"http://elsewhere/x"})"),
              HasSubstr("#/$ref: 'http://elsewhere/x' is not in this document"));
}

TEST(Schema, RefusesWhatIsNoSchema) {
  EXPECT_THAT(schema_error("[]"), HasSubstr("an object or a boolean"));
  EXPECT_THAT(schema_error(R"({"type":"strin"})"), HasSubstr("#/type: unknown type"));
  EXPECT_THAT(schema_error(R"({"properties":[]})"), HasSubstr("#/properties: must be an object"));
  EXPECT_THAT(schema_error(R"({"items":1})"), HasSubstr("#/items: a schema is"));
  EXPECT_THAT(schema_error(R"({"minLength":-1})"), HasSubstr("#/minLength: must be a count"));
  EXPECT_THAT(schema_error(R"({"required":"a"})"), HasSubstr("#/required:"));
  EXPECT_THAT(schema_error("false"), HasSubstr("matches no text"));
  EXPECT_THAT(schema_error(R"({"type":"integer","minimum":3,"maximum":2})"), HasSubstr("matches no text"));
  EXPECT_THAT(
      schema_error(
          R"({"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}},"$ref":"#/$defs/n"})"),
      HasSubstr("matches no text"))
      << "a value without an end";
}

TEST(Schema, HostileOnesAreBounded) {
  const auto is_bounded = [](const std::string& schema) {
    const auto rules = rules_of_json_schema(schema, {});
    if (!rules.ok()) return;
    EXPECT_LT(rules->memory_bytes(), 40u << 20) << schema.substr(0, 80);
    if (const auto grammar = CompiledGrammar::make(*rules, small_vocabulary()); grammar.ok()) {
      GrammarMatcher matcher(*grammar);
      std::mt19937 random(1);
      random_answer(matcher, (*grammar)->vocabulary(), random, 3, 30);
    }
  };
  is_bounded(R"({"type":"array","items":{"type":"object"},"minItems":1000000000})");
  is_bounded(R"({"type":"array","items":{"type":"object"},"minItems":40000,"maxItems":50000})");
  is_bounded(R"({"type":"string","minLength":1000000,"maxLength":100000000})");
  is_bounded(R"({"type":"integer","multipleOf":999999937,"minimum":1,"maximum":999999936})");
  std::string product = R"({"allOf":[)";
  for (int i = 0; i < 40; ++i) product += R"({"anyOf":[{"minimum":1},{"maximum":2},{"minLength":3}]},)";
  is_bounded(product + "{}]}");
  std::string objects = R"({"type":"object","properties":{)";
  for (int i = 0; i < 2000; ++i) objects += "\"member" + std::to_string(i) + "\":{\"type\":\"string\"},";
  is_bounded(objects + R"("z":{}}})");
  is_bounded(objects + R"("z":{}},"additionalProperties":false,"minProperties":1500})");
  std::string nested;
  for (int i = 0; i < 60; ++i) nested += R"({"items":)";
  is_bounded(nested + "{}" + std::string(60, '}'));
  is_bounded(R"({"$ref":"#"})");
  is_bounded(R"({"allOf":[{"$ref":"#"},{"$ref":"#/allOf/0"}]})");
}

TEST(Schema, WritesExactSeparatorsWhereToldTo) {
  const auto grammar =
      schema_grammar(R"({"type":"object","properties":{"a":{"type":"array"},"b":{"const":[1,2]}}})",
                     {.any_whitespace = false});
  EXPECT_TRUE(matches(grammar, R"({"a": [1, {"x": 2}], "b": [1, 2]})"));
  EXPECT_FALSE(matches(grammar, R"({"a":[1]})"));
  EXPECT_FALSE(matches(grammar, R"({"a": [1,2]})"));
}

TEST(Schema, RunsOfWhitespaceEnd) {
  const auto grammar = schema_grammar("{}");
  EXPECT_TRUE(matches(grammar, "[" + std::string(24, ' ') + "]"));
  EXPECT_FALSE(matches(grammar, "[" + std::string(90, ' ') + "]"));
}

TEST(Schema, AJsonObjectIsAnyObject) {
  auto rules = rules_of_json_object({});
  ASSERT_TRUE(rules.ok());
  const auto grammar = *CompiledGrammar::make(*std::move(rules), small_vocabulary());
  EXPECT_TRUE(matches(grammar, R"({"a":[1,"x",{}],"b":null})"));
  EXPECT_FALSE(matches(grammar, "[]"));
  EXPECT_FALSE(matches(grammar, "1"));
}

TEST(Schema, RandomAnswersParseAndMasksAreExact) {
  std::mt19937 random(17);
  for (
      const std::string_view schema :
      {R"({})",
       R"({"type":"object","properties":{"name":{"type":"string","maxLength":4},"id":{"type":"integer","minimum":7},
            "tags":{"type":"array","items":{"enum":["ab","abc","value"]},"maxItems":3}},"required":["id"]})",
       R"({"type":"array","items":{"type":"number","minimum":-1.5,"maximum":12.5},"minItems":2})",
       R"({"type":"string","pattern":"^(ab|é)+$"})"}) {
    const auto grammar = schema_grammar(schema);
    int ended = 0;
    for (int round = 0; round < 15; ++round) {
      GrammarMatcher matcher(grammar);
      const std::string text = random_answer(matcher, grammar->vocabulary(), random, 12, 400);
      if (!matcher.has_ended()) continue;
      ++ended;
      EXPECT_TRUE(parse_json(text).ok() ||
                  parse_json(text).status().message().find("duplicate") != std::string::npos)
          << text << parse_json(text).status();
    }
    EXPECT_GT(ended, 3) << schema;
    GrammarMatcher matcher(grammar);
    for (int i = 0; i < 20 && !matcher.has_ended(); ++i) {
      const std::vector<bool> mask = mask_of(matcher, grammar->vocabulary());
      ASSERT_EQ(mask, tried_mask(matcher, grammar->vocabulary())) << schema;
      const auto tokens = tokens_in(mask);
      ASSERT_TRUE(matcher.accept(tokens[random() % tokens.size()]).value());
    }
  }
}

}  // namespace troupe::grammar_test
