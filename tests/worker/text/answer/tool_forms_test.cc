// Every form of calls: what its text means, and that no cut of the text changes that.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/json/json.h"
#include "tests/worker/text/answer/parsed_text.h"

namespace troupe::answer_forms_test {

using parsed_text::Parsed;
using parsed_text::parsed;

constexpr std::string_view kTools = R"([
  {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
    "city":{"type":"string"},"days":{"type":"integer"},"metric":{"type":"boolean"},
    "tags":{"type":"array","items":{"type":"string"}},"where":{"type":"object"},
    "limit":{"anyOf":[{"type":"number"},{"type":"null"}]},"free":{}}}}},
  {"type":"function","function":{"name":"roll_dice","parameters":{"type":"object","properties":{}}}}])";

struct Case {
  std::string_view form, text, content;
  std::vector<std::pair<std::string_view, std::string_view>> calls;  // name, arguments
};

Parsed parse(const Case& each) {
  return parsed({.tools = each.form, .tools_json = kTools}, each.text);
}

const std::vector<Case>& whole_calls() {
  static const std::vector<Case> cases = {
      {"hermes",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\"}}\n</tool_call>",
       "",
       {{"get_weather", R"({"city": "Köln"})"}}},
      {"hermes",
       "Let me look. "
       "<tool_call>{\"name\":\"roll_dice\",\"arguments\":{}}</tool_call>\n<tool_call>{\"arguments\":"
       "{\"days\":2},\"name\":\"get_weather\"}</tool_call>",
       "Let me look. ",
       {{"roll_dice", "{}"}, {"get_weather", R"({"days":2})"}}},
      {"hermes",
       R"(<tool_call>{"name":"get_weather","arguments":"{\"city\":\"a\\\"}b\"}"}</tool_call>)",
       "",
       {{"get_weather", R"({"city":"a\"}b"})"}}},
      {"hermes",
       R"(<tool_call>{"name":"roll_dice","arguments":null}</tool_call>)",
       "",
       {{"roll_dice", "{}"}}},
      {"hermes",
       R"(<tool_call>{"id":[1,{"x":"}"}],"name":"roll_dice"}</tool_call>Done.)",
       "Done.",
       {{"roll_dice", "{}"}}},
      {"hermes",
       R"(<tool_call>{"name":"get_weather","arguments":{"city":"</tool_call>"}}</tool_call>)",
       "",
       {{"get_weather", R"({"city":"</tool_call>"})"}}},
      {"qwen3_coder",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nSão "
       "\"Paulo\"\n\nx\n</parameter>\n<parameter=days>\n3\n"
       "</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=tags>\n[\"a\", "
       "\"b\"]\n</parameter>\n"
       "<parameter=limit>\nnull\n</parameter>\n<parameter=unknown>\n5\n</parameter>\n</function>\n</"
       "tool_call>",
       "",
       {{"get_weather",
         R"({"city": "São \"Paulo\"\n\nx", "days": 3, "metric": true, "tags": ["a", "b"], "limit": null, "unknown": "5"})"}}},
      {"qwen3_coder",
       "Yes.\n<tool_call>\n<function=roll_dice>\n</function>\n</tool_call>",
       "Yes.\n",
       {{"roll_dice", "{}"}}},
      {"qwen3_coder",
       "<function=get_weather><parameter=days>many</function>",
       "",
       {{"get_weather", R"({"days": "many"})"}}},
      {"llama3_json",
       R"({"name": "get_weather", "parameters": {"city": "Oslo"}})",
       "",
       {{"get_weather", R"({"city": "Oslo"})"}}},
      {"llama3_json",
       R"(<|python_tag|>{"name": "other", "parameters": {"a": [1]}}; {"name": "roll_dice", "arguments": {}})",
       "",
       {{"other", R"({"a": [1]})"}, {"roll_dice", "{}"}}},
      {"pythonic",
       R"([get_weather(city="Łódź", days=-2, metric=True, tags=['a', "b\n\u00e9"], where={"x": (1, None)}), roll_dice()])",
       "",
       {{"get_weather",
         R"({"city": "Łódź", "days": -2, "metric": true, "tags": ["a", "b\né"], "where": {"x": [1, null]}})"},
        {"roll_dice", "{}"}}},
      {"llama4_pythonic", "<|python_start|>[roll_dice()]<|python_end|>", "", {{"roll_dice", "{}"}}},
      {"mistral",
       R"([TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]roll_dice[ARGS]{})",
       "",
       {{"get_weather", R"({"city": "Paris"})"}, {"roll_dice", "{}"}}},
      {"mistral",
       R"(Sure.[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome"}}, {"name": "roll_dice", "arguments": {}}])",
       "Sure.",
       {{"get_weather", R"({"city": "Rome"})"}, {"roll_dice", "{}"}}},
      {"mistral", R"([TOOL_CALLS]roll_dice{"n": 1})", "", {{"roll_dice", R"({"n": 1})"}}},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
       "\"Bonn\"}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>roll_dice\n```json\n{}\n```<"
       "｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       "",
       {{"get_weather", R"({"city": "Bonn"})"}, {"roll_dice", "{}"}}},
      {"deepseek_v31",
       "Gern.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
       "\"Ulm\"}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>roll_dice<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Gern.",
       {{"get_weather", R"({"city": "Ulm"})"}, {"roll_dice", "{}"}}},
      {"glm45",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>北京</arg_value>\n<arg_key>days</"
       "arg_key>\n"
       "<arg_value>1</arg_value>\n<arg_key>free</arg_key><arg_value>{\"a\":1}</arg_value></tool_call>\n"
       "<tool_call>roll_dice</tool_call>",
       "",
       {{"get_weather", R"({"city": "北京", "days": 1, "free": {"a":1}})"}, {"roll_dice", "{}"}}},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"
       "\"city\": "
       "\"Bern\"}<|tool_call_end|><|tool_call_begin|>functions.roll_dice:1<|tool_call_argument_begin|>{}"
       "<|tool_call_end|><|tool_calls_section_end|>",
       "",
       {{"get_weather", R"({"city": "Bern"})"}, {"roll_dice", "{}"}}},
      {"gemma4",
       "<|tool_call>call:get_weather{city:<|\"|>Wien, "
       "\"1\"<|\"|>,days:42,metric:false,tags:[<|\"|>a<|\"|>,<|\"|>b<|\"|>],"
       "where:{lat:1.5,lon:[]}}<tool_call|><|tool_call>call:roll_dice{}<tool_call|>",
       "",
       {{"get_weather",
         R"({"city": "Wien, \"1\"", "days": 42, "metric": false, "tags": ["a", "b"], "where": {"lat": 1.5, "lon": []}})"},
        {"roll_dice", "{}"}}},
  };
  return cases;
}

TEST(ToolForms, CallsAreFoundWhereverTheTextIsCut) {
  for (const Case& each : whole_calls()) {
    const Parsed whole = parse(each);
    EXPECT_EQ(whole.content, each.content) << each.text;
    ASSERT_EQ(whole.calls.size(), each.calls.size()) << each.text;
    for (size_t i = 0; i < whole.calls.size(); ++i) {
      EXPECT_EQ(whole.calls[i].name, each.calls[i].first) << each.text;
      EXPECT_EQ(whole.calls[i].arguments, each.calls[i].second) << each.text;
      EXPECT_TRUE(parse_json(whole.calls[i].arguments).ok()) << whole.calls[i].arguments;
    }
    parsed_text::expect_same_at_every_cut({.tools = each.form, .tools_json = kTools}, each.text);
  }
}

TEST(ToolForms, TextThatOnlyLooksLikeACallIsContentAndAllOfIt) {
  const std::pair<std::string_view, std::string_view> texts[] = {
      {"hermes", "Write <tool_call> to call, <tool_call>[1] or <tool_call>{\"nam\": 1} or </tool_call>."},
      {"hermes", "<tool_call>{\"name\": 5, \"arguments\": {}}"},
      {"hermes", "a < b <tool"},
      {"hermes", "  \n "},
      {"hermes", "<tool_call>"},
      {"qwen3_coder", "<tool_call>\nnothing</tool_call> <function=>"},
      {"qwen3_coder", "<function=a b>"},
      {"llama3_json",
       R"({"name": "Bob", "parameters": {"age": 3}} and {"name": "get_weather", "parameters": {}})"},
      {"llama3_json", R"({"title": "x"})"},
      {"llama3_json", R"({"name": "get_weather"})"},
      {"llama3_json", "<|python_tag|>print(1)"},
      {"pythonic", "[1, 2] is a list, [unknown(a=1)] too"},
      {"pythonic", "[get_weather(\"Oslo\")]"},
      {"mistral", "[TOOL_CALLS] nothing of this"},
      {"mistral", "[TOOL_CALLS][]"},
      {"mistral", "[TOOL_CALL]"},
      {"deepseek_v31", "<｜tool▁calls▁begin｜>none<｜tool▁calls▁end｜>"},
      {"deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n"},
      {"glm45", "<tool_call>{\"name\": 1}</tool_call>"},
      {"glm45", "<tool_call>word\nand more"},
      {"kimi_k2", "<|tool_calls_section_begin|> hm"},
      {"gemma4", "<|tool_call>phone:x{}"},
      {"gemma4", "<｜ö <|tool_cäll>"},
  };
  for (const auto& [form, text] : texts) {
    const parsed_text::ParseAs setup{.tools = form, .tools_json = kTools};
    const Parsed whole = parsed(setup, text);
    EXPECT_EQ(whole.content, text) << form;
    EXPECT_TRUE(whole.calls.empty()) << text;
    parsed_text::expect_same_at_every_cut(setup, text);
  }
}

TEST(ToolForms, WrongArgumentsStayTheModelsOrAreMadeJson) {
  const Case cases[] = {
      // JSON's forms hand on what the model wrote, up to the object's end or to what no JSON has.
      {"hermes",
       R"(<tool_call>{"name":"get_weather","arguments":{city: Oslo}}</tool_call>)",
       "",
       {{"get_weather", "{city: Oslo}"}}},
      {"hermes",
       R"(<tool_call>{"name":"get_weather","arguments":{"days": 1</tool_call> So.)",
       "So.",
       {{"get_weather", R"({"days": 1)"}}},
      {"deepseek_v31",
       "<｜tool▁call▁begin｜>roll_dice<｜tool▁sep｜>six<｜tool▁call▁end｜>",
       "",
       {{"roll_dice", "six"}}},
      // The other forms' arguments are JSON whatever the model wrote.
      {"pythonic",
       "[get_weather(city='a', days=2*3)]",
       "*3)]",
       {{"get_weather", R"({"city": "a", "days": 2})"}}},
      {"pythonic",
       "[get_weather(where={'a'}, tags=[)]",
       ")]",
       {{"get_weather", R"({"where": {"a": null}, "tags": []})"}}},
      {"gemma4",
       "<|tool_call>call:get_weather{city:Bad Ems,days:}<tool_call|>",
       "",
       {{"get_weather", R"({"city": "Bad Ems", "days": null})"}}},
      {"qwen3_coder",
       "<function=get_weather>\n<parameter=where>{'a': 1}</parameter>\n</function>",
       "",
       {{"get_weather", R"({"where": "{'a': 1}"})"}}},
  };
  for (const Case& each : cases) {
    const Parsed whole = parse(each);
    EXPECT_EQ(whole.content, each.content) << each.text;
    ASSERT_EQ(whole.calls.size(), 1u) << each.text;
    EXPECT_EQ(whole.calls[0].name, each.calls[0].first) << each.text;
    EXPECT_EQ(whole.calls[0].arguments, each.calls[0].second) << each.text;
    parsed_text::expect_same_at_every_cut({.tools = each.form, .tools_json = kTools}, each.text);
  }
}

// A call that the answer's end cuts never has whole arguments.
TEST(ToolForms, CutCallsHaveCutArguments) {
  for (const Case& each : whole_calls()) {
    for (size_t size = 0; size < each.text.size(); ++size) {
      if ((each.text[size] & 0xC0) == 0x80) continue;
      const Parsed cut = parsed({.tools = each.form, .tools_json = kTools}, each.text.substr(0, size));
      ASSERT_LE(cut.calls.size(), each.calls.size());
      for (size_t i = 0; i < cut.calls.size(); ++i) {
        const std::string_view whole = each.calls[i].second;
        const std::string& got = cut.calls[i].arguments;
        EXPECT_TRUE(whole.starts_with(got)) << got << " of " << each.text.substr(0, size);
      }
    }
  }
}

TEST(ToolForms, HeldTextIsBounded) {
  for (const std::string_view name : tool_form_names()) {
    const ToolForm* const form = tool_form(name);
    std::string text;
    for (const std::string_view mark : form->calls) text += mark;
    if (form->bracket != 0) text += form->bracket;
    text += name == "deepseek_v3" || name == "gemma4" || name == "hermes" ? "" : "x";
    if (name == "hermes") text += "{\"name\":\"";
    text += std::string(3 * ToolText::kHeldBytesMax, 'a');
    const Parsed whole = parsed({.tools = name, .tools_json = kTools}, text);
    EXPECT_EQ(whole.content, text) << name;
    parsed_text::Stream stream({.tools = name, .tools_json = kTools});
    stream.push(text);
    EXPECT_GT(stream.parsed.content.size(), text.size() - ToolText::kHeldBytesMax) << name;
  }
}

TEST(ToolForms, CallsAfterTheFirstAreLeftOutWhereOneIsAskedFor) {
  const Parsed one = parsed({.tools = "mistral", .tools_json = kTools, .parallel = false},
                            R"([TOOL_CALLS]get_weather[ARGS]{"days":1}[TOOL_CALLS]roll_dice[ARGS]{})");
  ASSERT_EQ(one.calls.size(), 1u);
  EXPECT_EQ(one.calls[0].arguments, R"({"days":1})");
}

TEST(ToolForms, IdsFollowFromTheAnswerAndAreTheModelsWhereItGivesThem) {
  const parsed_text::ParseAs setup{.tools = "hermes", .tools_json = kTools};
  const std::string_view text =
      "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"a\",\"arguments\":{}}</"
      "tool_call>";
  const Parsed first = parsed(setup, text), again = parsed(setup, text);
  ASSERT_EQ(first.calls.size(), 2u);
  EXPECT_EQ(first.calls, again.calls);
  EXPECT_NE(first.calls[0].id, first.calls[1].id);
  EXPECT_TRUE(first.calls[0].id.starts_with("call_"));
  const Parsed kimi =
      parsed({.tools = "kimi_k2", .tools_json = kTools},
             "<|tool_call_begin|>functions.a:7<|tool_call_argument_begin|>{}<|tool_call_end|>");
  ASSERT_EQ(kimi.calls.size(), 1u);
  EXPECT_EQ(kimi.calls[0].id, "functions.a:7");
  const Parsed mistral = parsed({.tools = "mistral", .tools_json = kTools}, "[TOOL_CALLS]a[ARGS]{}");
  ASSERT_EQ(mistral.calls.size(), 1u);
  EXPECT_EQ(mistral.calls[0].id.size(), 9u);
}

}  // namespace troupe::answer_forms_test
