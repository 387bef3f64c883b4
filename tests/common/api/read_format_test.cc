// The fields that say how an answer has to look, under all their names.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/api/api.h"

namespace troupe::read_format_test {

using ::testing::HasSubstr;
using Kind = AnswerFormat::Kind;

ApiResult<GenerateRequest> chat(const std::string& fields, const ApiLimits& limits = {}) {
  return parse_chat_request(R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}", limits);
}

AnswerFormat format_of(const std::string& fields) {
  auto request = chat(fields);
  EXPECT_TRUE(request.ok() && request->format) << fields << (request.ok() ? "" : request.error().message);
  return request.ok() && request->format ? *request->format : AnswerFormat{};
}

TEST(ReadFormat, EveryNameIsKnown) {
  struct Row {
    std::string fields;
    Kind kind;
    std::string field, text;
  };
  for (const Row& row : std::vector<Row>{
           {R"("response_format":{"type":"json_object"})", Kind::kJsonObject, "response_format.type", ""},
           {R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"const":1.50}}})",
            Kind::kJsonSchema, "response_format.json_schema.schema", R"({"const":1.5})"},
           {R"("response_format":{"type":"structural_tag","structures":[],"triggers":["<"]})",
            Kind::kStructuralTag, "response_format", R"({"structures":[],"triggers":["<"]})"},
           {R"("structured_outputs":{"regex":"a+","json":null})", Kind::kRegex, "structured_outputs.regex",
            "a+"},
           {R"("structured_outputs":{"json_object":true,"grammar":""})", Kind::kJsonObject,
            "structured_outputs.json_object", ""},
           {R"("guided_json":"{\"type\":\"null\"}")", Kind::kJsonSchema, "guided_json", R"({"type":"null"})"},
           {R"("json_schema":{"type":"null"})", Kind::kJsonSchema, "json_schema", R"({"type":"null"})"},
           {R"("grammar_string":"root ::= x")", Kind::kGbnf, "grammar_string", "root ::= x"},
           {R"("regex_pattern":"b")", Kind::kRegex, "regex_pattern", "b"}}) {
    const AnswerFormat format = format_of(row.fields);
    EXPECT_EQ(format.kind, row.kind) << row.fields;
    EXPECT_EQ(format.field, row.field);
    EXPECT_EQ(format.text, row.text);
    EXPECT_TRUE(format.any_whitespace);
  }
  EXPECT_EQ(format_of(R"("guided_choice":["a",""])").choices, (std::vector<std::string>{"a", ""}));
  EXPECT_FALSE(
      format_of(R"("structured_outputs":{"json":{"a":1},"disable_any_whitespace":true})").any_whitespace);
}

TEST(ReadFormat, OffValuesAreOff) {
  for (
      const std::string fields :
      {R"("response_format":{"type":"text"})", R"("response_format":{})", R"("structured_outputs":{})",
       R"("grammar":"","grammar_string":null,"json_schema":{},"guided_choice":[],"guided_json_object":false)",
       R"("guided_whitespace_pattern":"")"}) {
    auto request = chat(fields);
    ASSERT_TRUE(request.ok()) << fields << request.error().message;
    EXPECT_FALSE(request->format) << fields;
  }
}

TEST(ReadFormat, TwoThatDifferAreNamed) {
  EXPECT_EQ(format_of(R"("grammar":"root ::= x","grammar_string":"root ::= x")").text, "root ::= x");
  const auto both = chat(R"("grammar":"root ::= x","guided_regex":"x")");
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().param, "guided_regex");
  EXPECT_THAT(both.error().message, HasSubstr("'grammar'"));
  const auto inside = chat(R"("structured_outputs":{"regex":"x","choice":["x"]})");
  ASSERT_FALSE(inside.ok());
  EXPECT_THAT(inside.error().message, HasSubstr("structured_outputs.regex"));
}

TEST(ReadFormat, FaultsNameTheField) {
  const auto param = [](const std::string& fields) {
    auto request = chat(fields);
    return request.ok() ? "accepted" : request.error().param;
  };
  EXPECT_EQ(param(R"("response_format":{"type":"xml"})"), "response_format.type");
  EXPECT_EQ(param(R"("response_format":{"schema":{}})"), "response_format.type");
  EXPECT_EQ(param(R"("response_format":{"type":"json_schema"})"), "response_format.json_schema");
  EXPECT_EQ(param(R"("guided_regex":7)"), "guided_regex");
  EXPECT_EQ(param(R"("guided_choice":["a",7])"), "guided_choice");
  EXPECT_EQ(param(R"("structured_outputs":{"disable_any_whitespace":true})"), "structured_outputs");
  EXPECT_EQ(param(R"("structured_outputs":{"choice":[]})"), "structured_outputs.choice");
  EXPECT_THAT(chat(R"("structured_outputs":{"choice":[]})").error().message, HasSubstr("empty"));
  EXPECT_EQ(param(R"("structured_outputs":{"json":{"a":1},"whitespace_pattern":" "})"),
            "structured_outputs.whitespace_pattern");
  EXPECT_EQ(param(R"("guided_whitespace_pattern":" ")"), "guided_whitespace_pattern");
  ApiLimits limits;
  limits.for_others = true;
  EXPECT_TRUE(chat(R"("guided_regex":7,"response_format":{"type":"xml"},"tool_choice":"any")", limits).ok());
}

TEST(ReadFormat, ChoicesAreNotWithoutEnd) {
  std::string choices = "\"a\"";
  for (int i = 0; i < 16384; ++i) choices += ",\"a\"";
  const auto many = chat(R"("guided_choice":[)" + choices + "]");
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().param, "guided_choice");
  EXPECT_THAT(many.error().message, HasSubstr("at most 16384"));
}

TEST(ReadFormat, AToolMayBeChosen) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":)";
  EXPECT_EQ(chat(tools + R"("required")")->tool_choice, ToolChoice::kRequired);
  auto named = chat(tools + R"({"type":"function","function":{"name":"f"}})");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(named->called_tool, "f");
  EXPECT_FALSE(named->parallel_tool_calls);
  EXPECT_TRUE(chat(tools + R"("required")")->parallel_tool_calls);
  EXPECT_EQ(chat(tools + R"({"type":"function","function":{"name":"g"}})").error().param,
            "tool_choice.function.name");
  EXPECT_EQ(chat(tools + R"({"type":"function"})").error().param, "tool_choice");
  EXPECT_EQ(chat(R"("tool_choice":"required")").error().param, "tool_choice");
}

}  // namespace troupe::read_format_test
