// Thoughts apart from what is said, in every form, before calls, and where the prompt opened them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/worker/text/answer/parsed_text.h"

namespace troupe::thoughts_test {

using parsed_text::ParseAs;
using parsed_text::Parsed;
using parsed_text::parsed;

struct Case {
  ParseAs setup;
  std::string_view text, reasoning, content;
};

TEST(Thoughts, AreToldApartWhereverTheTextIsCut) {
  const Case cases[] = {
      {{.thoughts = "qwen3"}, "<think>\nHm, 3 < 4.\n</think>\n\nHello.", "Hm, 3 < 4.", "Hello."},
      {{.thoughts = "qwen3"}, "\n <think>a</think>b <think>c</think>", "a", "b <think>c</think>"},
      {{.thoughts = "qwen3", .in_thought = true}, "\nHm.\n\n</think>\n\nHello.", "Hm.\n", "Hello."},
      {{.thoughts = "qwen3", .in_thought = true}, "never closed </thin", "never closed </thin", ""},
      {{.thoughts = "qwen3"}, "No thought: <think>", "", "No thought: <think>"},
      {{.thoughts = "qwen3"}, " <thi", "", " <thi"},
      {{.thoughts = "qwen3"}, "", "", ""},
      {{.thoughts = "mistral"}, "[THINK]é[/THINK]x[THINK]b[/THINK]y", "éb", "xy"},
      {{.thoughts = "gemma4"}, "<|channel>thought\nLet me.\n<channel|>Hi <|chan", "Let me.", "Hi <|chan"},
      {{.thoughts = "minimax_m3"}, "<mm:think>a</mm:think>b", "a", "b"},
      {{.tools = "hermes", .thoughts = "qwen3"},
       "<think>a <tool_call>{\"name\":\"n\",\"arguments\":{}}</think> b",
       "a <tool_call>{\"name\":\"n\",\"arguments\":{}}",
       " b"},
      {{.thoughts = "qwen3", .includes_thoughts = false}, "<think>secret</think>said", "", "said"},
  };
  for (const Case& each : cases) {
    const Parsed whole = parsed(each.setup, each.text);
    EXPECT_EQ(whole.reasoning, each.reasoning) << each.text;
    EXPECT_EQ(whole.content, each.content) << each.text;
    EXPECT_TRUE(whole.calls.empty());
    parsed_text::expect_same_at_every_cut(each.setup, each.text);
  }
}

TEST(Thoughts, CallsFollowThem) {
  const ParseAs setup{.tools = "kimi_k2", .thoughts = "kimi_k2", .in_thought = true};
  // The model left its thought open.
  const std::string_view text =
      "I need it.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_calls_section_end|>";
  const Parsed whole = parsed(setup, text);
  EXPECT_EQ(whole.reasoning, "I need it.");
  EXPECT_EQ(whole.content, "");
  ASSERT_EQ(whole.calls.size(), 1u);
  EXPECT_EQ(whole.calls[0].name, "f");
  parsed_text::expect_same_at_every_cut(setup, text);
}

TEST(Thoughts, OfOpenAisModelsAreAChannelBesideOthers) {
  const ParseAs form{.tools = "openai", .thoughts = "openai_gptoss"};
  const std::string_view said =
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is 5 < "
      "6.<|return|>";
  EXPECT_EQ(parsed(form, said).reasoning, "Hm.");
  EXPECT_EQ(parsed(form, said).content, "It is 5 < 6.");
  parsed_text::expect_same_at_every_cut(form, said);
  for (const std::string_view header : {"<|channel|>commentary to=functions.f <|constrain|>json",
                                        " to=functions.f<|channel|>commentary json"}) {
    const std::string text =
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>One moment.<|end|><|start|>assistant" +
        std::string(header) + "<|message|>{\"a\": 1}";
    const Parsed whole = parsed(form, text);
    EXPECT_EQ(whole.reasoning, "Hm.");
    EXPECT_EQ(whole.content.substr(0, 11), "One moment.") << text;  // (a header may begin with a space)
    ASSERT_EQ(whole.calls.size(), 1u);
    EXPECT_EQ(whole.calls[0].name, "f");
    EXPECT_EQ(whole.calls[0].arguments, "{\"a\": 1}");
    parsed_text::expect_same_at_every_cut(form, text);
  }
}

TEST(Thoughts, TheirTokensAreCounted) {
  parsed_text::Stream stream({.thoughts = "qwen3"});
  for (const std::string_view token : {"<think>", "a", "b", "</think>", "c", "d"}) stream.push(token);
  stream.finish();
  EXPECT_EQ(stream.parser().thought_tokens(), 4);
  EXPECT_EQ(stream.parsed.content, "cd");
}

TEST(Thoughts, APromptOpensThem) {
  const ThoughtForm& qwen = *thought_form("qwen3");
  EXPECT_TRUE(opens_thought(qwen, "<|im_start|>assistant\n<think>\n", false));
  EXPECT_FALSE(opens_thought(qwen, "say <think> now<|im_end|>\n<|im_start|>assistant\n", false));
  EXPECT_FALSE(opens_thought(qwen, "assistant\n<think>\n\n</think>\n\n", false));
  EXPECT_TRUE(opens_thought(qwen, "assistant\n<think>\nI am", true));
  EXPECT_FALSE(opens_thought(qwen, "assistant\n<think>\nI am</think>\nWell", true));
  const ThoughtForm& r1 = *thought_form("deepseek_r1");
  EXPECT_TRUE(opens_thought(r1, "<｜Assistant｜>", false));
  EXPECT_FALSE(opens_thought(r1, "<｜Assistant｜><think>\n\n</think>\n\n", false));
}

TEST(Forms, AreKnownFromATemplatesTexts) {
  const auto tools_of = [](std::vector<std::string> texts) {
    const ToolForm* const form = tool_form_shown(texts);
    return form == nullptr ? std::string_view() : form->name;
  };
  EXPECT_EQ(tools_of({"<|im_start|>", "return within <tool_call></tool_call>:\n{\"name\": "}), "hermes");
  EXPECT_EQ(tools_of({"<tool_call>\n<function=", "</parameter>"}), "qwen3_coder");
  EXPECT_EQ(tools_of({"<tool_call>", "<arg_key>"}), "glm45");
  EXPECT_EQ(tools_of({"[TOOL_CALLS]"}), "mistral");
  EXPECT_EQ(tools_of({"<｜tool▁sep｜>", "\n```json\n"}), "deepseek_v3");
  EXPECT_EQ(tools_of({"<｜tool▁sep｜>"}), "deepseek_v31");
  EXPECT_EQ(tools_of({"<|tool_calls_section_begin|>"}), "kimi_k2");
  EXPECT_EQ(tools_of({"<|tool_call>call:"}), "gemma4");
  EXPECT_EQ(tools_of({"<|python_tag|>"}), "llama3_json");
  EXPECT_EQ(tools_of({"<|im_start|>"}), "");
  const std::vector<std::string> thinks = {"<think>\n\n</think>\n\n"};
  ASSERT_NE(thought_form_shown(thinks), nullptr);
  EXPECT_EQ(thought_form_shown(thinks)->name, "qwen3");
}

}  // namespace troupe::thoughts_test
