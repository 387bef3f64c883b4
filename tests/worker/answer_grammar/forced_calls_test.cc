// Calls that an answer must have, or that have to pass where it has them, in every form whose calls are held
// to a grammar: random answers, read as clients get them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/grammar/front/front_ends.h"
#include "tests/worker/answer_grammar/prepared_answers.h"

namespace troupe::prepare_grammar_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ForcedCalls : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Forms, ForcedCalls,
                         ::testing::Values("hermes", "llama3_json", "mistral", "deepseek_v31", "deepseek_v3",
                                           "kimi_k2", "qwen3_coder", "glm45", "pythonic", "llama4_pythonic"));

TEST_P(ForcedCalls, ComeAsTheyWereAskedFor) {
  const Prepared required(kTools + R"(,"tool_choice":"required")", GetParam());
  const Prepared single(kTools + R"(,"tool_choice":"required","parallel_tool_calls":false)", GetParam());
  const Prepared named(
      kTools +
          R"(,"tool_choice":{"type":"function","function":{"name":"look-at"}},"parallel_tool_calls":false)",
      GetParam());
  std::set<std::string> names;
  size_t most = 0, ended = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    for (const Prepared* prepared : {&required, &single, &named}) {
      ASSERT_FALSE(prepared->error) << prepared->error->message;
      AnswerDelta delta;
      std::string text;
      if (!prepared->answer(seed, delta, text)) continue;
      ++ended;
      const std::vector<ToolCall> calls = calls_of(delta);
      ASSERT_FALSE(calls.empty()) << text;
      EXPECT_TRUE(delta.content.find_first_not_of(" \n") == std::string::npos) << text;
      EXPECT_TRUE(prepared == &required || calls.size() == 1) << text;
      most = std::max(most, calls.size());
      for (const ToolCall& call : calls) {
        EXPECT_TRUE(passes(call, /*is_held_to_all=*/true)) << call.name << call.arguments << " in " << text;
        EXPECT_TRUE(prepared != &named || call.name == "look-at") << text;
        names.insert(call.name);
      }
    }
  }
  EXPECT_GT(ended, 100u);
  EXPECT_GT(most, 1u);
  EXPECT_EQ(names.size(), 3u);
}

TEST_P(ForcedCalls, OfStrictFunctionsPassWhereTheModelCalls) {
  const Prepared prepared(kTools, GetParam());
  ASSERT_FALSE(prepared.error) << prepared.error->message;
  size_t with = 0, without = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    AnswerDelta delta;
    std::string text;
    if (!prepared.answer(seed, delta, text)) continue;
    const std::vector<ToolCall> calls = calls_of(delta);
    (calls.empty() ? without : with) += 1;
    for (const ToolCall& call : calls)
      EXPECT_TRUE(passes(call, /*is_held_to_all=*/false)) << call.name << call.arguments << " in " << text;
  }
  EXPECT_GT(with, 5u);
  EXPECT_GT(without, 5u);
}

// A value of every kind that a form may read in its own way.
const std::string kSchema =
    R"({"type":"object","properties":{"text":{"type":"string"},"short":{"type":"string","maxLength":3,"minLength":1},)"
    R"("word":{"enum":["5","true","</parameter>","a \"b\"\n","é"]},"code":{"$ref":"#/$defs/code"},)"
    R"("count":{"type":"integer","minimum":1,"maximum":40},"share":{"type":"number","exclusiveMinimum":0,"maximum":1},)"
    R"("flag":{"type":["boolean","null"]},"name":{"anyOf":[{"type":"string","minLength":2},{"type":"null"}]},)"
    R"("id":{"type":["integer","string"]},"fixed":{"const":[null,true,"</arg_value>"]},)"
    R"("tags":{"type":"array","items":{"type":"string","maxLength":4},"maxItems":3},)"
    R"("where":{"type":"object","properties":{"x":{"type":"integer"},"of":{"type":"string"}},"required":["of"],)"
    R"("additionalProperties":false},"any":{}},"required":["text","count","where"],"additionalProperties":false,)"
    R"("$defs":{"code":{"type":"string","pattern":"^[A-Z<]{2}[0-9/]?$"}}})";

std::string tools_with(const std::string& schema) {
  return R"(,"tools":[{"type":"function","function":{"name":"f","parameters":)" + schema + "}}]";
}

// Types that are found by following the schema, and others than those that are declared.
const std::string kOpenSchema =
    R"({"type":"object","properties":{"low":{"$ref":"#/$defs/low"},"high":{"allOf":[{"type":"integer"},{"minimum":8}]},)"
    R"("none":{"type":"integer","nullable":true}},"required":["low"],"additionalProperties":{"type":"boolean"},)"
    R"("$defs":{"low":{"type":"integer","maximum":9,"minimum":0}}})";

// The schema's own grammar: its arguments as JSON, and one way to write each.
class Oracle {
 public:
  explicit Oracle(const std::string& schema) {
    std::vector<std::string> texts = {""};
    for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
    vocabulary_ = grammar::Vocabulary::make(std::move(texts), {0}).value();
    grammar_ = grammar::CompiledGrammar::make(grammar::rules_of_json_schema(schema, {}).value(), vocabulary_)
                   .value();
  }
  bool passes(bj::value arguments) const {
    grammar::GrammarMatcher matcher(grammar_);
    // Numbers that are written again may get an exponent that a grammar has not.
    bj::object& members = arguments.get_object();
    if (const bj::value* share = members.if_contains("share")) {
      if (share->to_number<double>() <= 0 || share->to_number<double>() > 1) return false;
    }
    for (const char* name : {"share", "any"})
      if (members.contains(name)) members.stable_erase(name);  // the others keep their order
    return matcher.accept_text(to_json(arguments)).value_or(false) && matcher.is_accepting();
  }

 private:
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  std::shared_ptr<const grammar::CompiledGrammar> grammar_;
};

TEST_P(ForcedCalls, HaveArgumentsThatPassWhenTheyAreRead) {
  const Oracle oracle(kSchema);
  ASSERT_TRUE(oracle.passes(*parse_json(R"({"text":"","count":2,"where":{"of":"a"},"any":[{"b":null}]})")));
  ASSERT_FALSE(oracle.passes(*parse_json(R"({"text":"","count":41,"where":{"of":"a"}})")));
  const Prepared prepared(tools_with(kSchema) + R"(,"tool_choice":"required","parallel_tool_calls":false)",
                          GetParam());
  ASSERT_FALSE(prepared.error) << prepared.error->message;
  size_t ended = 0;
  std::set<std::string> names;
  for (uint32_t seed = 0; seed < 90; ++seed) {
    AnswerDelta delta;
    std::string text;
    if (!prepared.answer(seed, delta, text)) continue;
    const std::vector<ToolCall> calls = calls_of(delta);
    ASSERT_EQ(calls.size(), 1u) << text;
    const auto arguments = parse_json(calls[0].arguments);
    if (!arguments.ok() && arguments.status().message().find("duplicate key") != absl::string_view::npos)
      continue;
    ASSERT_TRUE(arguments.ok()) << arguments.status() << calls[0].arguments << " of " << text;
    EXPECT_TRUE(oracle.passes(*arguments)) << calls[0].arguments << " of " << text;
    for (const auto& each : arguments->get_object()) names.insert(std::string(each.key()));
    ++ended;
  }
  EXPECT_GT(ended, 30u);
  EXPECT_EQ(names.size(), 13u);
}

TEST_P(ForcedCalls, ReadArgumentsByTheTypesThatTheSchemaLeadsTo) {
  const Oracle oracle(kOpenSchema);
  const Prepared prepared(
      tools_with(kOpenSchema) + R"(,"tool_choice":"required","parallel_tool_calls":false)", GetParam());
  ASSERT_FALSE(prepared.error) << prepared.error->message;
  size_t others = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    AnswerDelta delta;
    std::string text;
    if (!prepared.answer(seed, delta, text)) continue;
    const std::vector<ToolCall> calls = calls_of(delta);
    ASSERT_EQ(calls.size(), 1u) << text;
    const auto arguments = parse_json(calls[0].arguments);
    if (!arguments.ok()) continue;  // a name that is not declared comes twice
    EXPECT_TRUE(oracle.passes(*arguments)) << calls[0].arguments << " of " << text;
    const bj::object& members = arguments->get_object();
    others += members.size() > 1 && members.if_contains(members.rbegin()->key())->is_bool() ? 1 : 0;
  }
  EXPECT_GT(others, 3u);
}

// A reader of calls sees no difference between a special token and its letters.
TEST(ForcedCallsInText, BeginWithAMarkThatIsSpelledInLetters) {
  const Prepared prepared(kTools, "hermes");
  ASSERT_FALSE(prepared.error) << prepared.error->message;
  const auto accepts = [&](std::string_view text) {
    grammar::GrammarMatcher matcher(prepared.request.engine.grammar.compiled);
    return matcher.accept_text(text).value_or(false) && matcher.is_accepting();
  };
  EXPECT_TRUE(accepts(R"(So: <tool_call>{"name": "roll", "arguments": {"sides": 9}}</tool_call> Done.)"));
  EXPECT_FALSE(accepts(R"(So: <tool_call>{"name": "roll", "arguments": {"sides": 99}}</tool_call> Done.)"));
  EXPECT_TRUE(accepts("So: <tool_cal"));
}

// Types are read for every request with tools, by following what refers to what.
TEST(ForcedCallsInText, HaveTypesThatAreFoundInBoundedTime) {
  std::string defs;
  for (int i = 0; i < 12; ++i) {
    std::string ways;
    for (int j = 0; j < 12; ++j)
      absl::StrAppend(&ways, j == 0 ? "" : ",", R"({"$ref":"#/$defs/)", i + 1, "\"}");
    absl::StrAppend(&defs, i == 0 ? "" : ",", "\"", i, R"(":{"anyOf":[)", ways, "]}");
  }
  const std::string schema =
      R"({"properties":{"a":{"$ref":"#/$defs/0"}},"$ref":"#/$defs/0","$defs":{)" + defs + "}}";
  const Prepared prepared(tools_with(schema), "qwen3_coder");
  ASSERT_FALSE(prepared.error) << prepared.error->message;
}

TEST_P(ForcedCalls, WhatTheirFormCannotHoldIsNamed) {
  const bool has_frames =
      GetParam() == "qwen3_coder" || GetParam() == "glm45" || GetParam().ends_with("pythonic");
  const auto fault = [&](const std::string& schema) {
    const Prepared prepared(tools_with(schema) + R"(,"tool_choice":"required")", GetParam());
    return prepared.error ? prepared.error->message : std::string("accepted");
  };
  const auto named = HasSubstr("tools[0].function.parameters");
  const std::string patterns = fault(R"({"patternProperties":{"^a":{"type":"integer"}}})");
  const std::string odd_name = fault(R"({"properties":{"a<b c":{"type":"integer"}}})");
  if (has_frames) {
    EXPECT_THAT(patterns, AllOf(named, HasSubstr("patternProperties")));
    EXPECT_THAT(odd_name, AllOf(named, HasSubstr("a<b c")));
  } else {
    EXPECT_EQ(patterns + odd_name, "acceptedaccepted");
  }
  EXPECT_THAT(fault(R"({"properties":{"a":{"type":"string","format":"idn-email"}}})"),
              AllOf(named, HasSubstr("format")));
}

}  // namespace troupe::prepare_grammar_test
