// How an answer is to be parsed follows from the model's template and from the request.

#include "worker/input/prepare_answer.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/worker/input/chat_server.h"

namespace troupe::prepare_answer_test {

using chat_server::bytes_with_line_breaks;
using chat_server::ChatServer;

constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if tools %}<tool_call>{\"name\": …}</tool_call>{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>{% if enable_thinking is not defined %}<think>\n"
    "{% elif not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}";
constexpr const char* kTools = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";

struct Prepared {
  explicit Prepared(const std::string& fields, std::string_view tool_parser = "auto",
                    std::string_view reasoning_parser = "auto")
      : server(bytes_with_line_breaks({"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"}),
               kTemplate) {
    server.model.forms =
        model_forms(*server.tokenizer, server.chat_template.get(), nullptr, tool_parser, reasoning_parser);
    auto made = prepare_request(server.model, GenerateRequest::Kind::kChat,
                                R"({"messages":[{"role":"user","content":"say <think>"}])" + fields + "}", 1);
    EXPECT_TRUE(made.ok()) << made.error().message;
    if (made.ok()) request = *std::move(made);
  }
  const AnswerSyntax& syntax() const { return request.syntax; }
  std::vector<TokenId> shown() const {
    return request.engine.shown_special == nullptr ? std::vector<TokenId>() : *request.engine.shown_special;
  }

  ChatServer server;
  PreparedRequest request;
};

const std::string kWithTools = std::string(",\"tools\":") + kTools;

TEST(PrepareAnswer, CallsAreLookedForWhereARequestHasTools) {
  const Prepared with(kWithTools), without("");
  ASSERT_NE(with.syntax().tools, nullptr);
  EXPECT_EQ(with.syntax().tools->name, "hermes");
  EXPECT_TRUE(with.syntax().schemas->has("f"));
  EXPECT_EQ(with.shown(), (std::vector<TokenId>{302, 303}));  // <tool_call>, </tool_call>
  EXPECT_EQ(without.syntax().tools, nullptr);
  EXPECT_EQ(without.shown(), std::vector<TokenId>());
  EXPECT_EQ(Prepared(kWithTools + R"(,"tool_choice":"none")").syntax().tools, nullptr);
  EXPECT_EQ(Prepared(kWithTools, "none").syntax().tools, nullptr);
  EXPECT_EQ(Prepared(kWithTools, "mistral").syntax().tools->name, "mistral");
  EXPECT_FALSE(Prepared(kWithTools + R"(,"parallel_tool_calls":false)").syntax().parallel_calls);
}

TEST(PrepareAnswer, AThoughtMayBeOpenWhereTheAnswerBegins) {
  ASSERT_NE(Prepared("").syntax().thoughts, nullptr);
  EXPECT_EQ(Prepared("").syntax().thoughts->name, "qwen3");
  EXPECT_TRUE(Prepared("").syntax().in_thought);
  EXPECT_FALSE(Prepared(R"(,"chat_template_kwargs":{"enable_thinking":true})").syntax().in_thought);
  EXPECT_FALSE(Prepared(R"(,"reasoning_effort":"none")").syntax().in_thought);
  EXPECT_TRUE(Prepared(R"(,"assistant_prefill":"<think>\nI am")").syntax().in_thought);
  EXPECT_TRUE(Prepared(R"(,"assistant_prefill":"I am")").syntax().in_thought);
  EXPECT_FALSE(Prepared(R"(,"assistant_prefill":"<think>\nI am</think>\nWell")").syntax().in_thought);
  EXPECT_FALSE(Prepared("", "auto", "none").syntax().parses());
  EXPECT_FALSE(Prepared(R"(,"include_reasoning":false)").syntax().includes_thoughts);
}

}  // namespace troupe::prepare_answer_test
