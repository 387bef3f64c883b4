// The Messages API ↔ a chat, without sockets.

#include "common/dialects/anthropic/anthropic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/dialects/speak.h"

namespace troupe {
namespace {

using dialects_test::chat_stream;
using dialects_test::core_request;
using dialects_test::refusal;
using dialects_test::said;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kMessages = "/v1/messages";

TEST(AnthropicRequest, BecomesAChat) {
  const GenerateRequest chat = core_request(kMessages, R"({
    "model": "m", "max_tokens": 9, "stop_sequences": ["END"], "temperature": 0.5, "top_k": 3, "top_p": 0.9,
    "system": [{"type": "text", "text": "Be Ruvo.", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": "Hi"}], "metadata": {"user_id": "u1"}, "min_p": 0.1,
    "service_tier": "auto"})");
  ASSERT_EQ(chat.messages.size(), 2u);
  EXPECT_EQ(chat.messages[0].role, Role::kSystem);
  EXPECT_EQ(chat.messages[0].content, "Be Ruvo.");
  EXPECT_EQ(chat.messages[1].content, "Hi");
  EXPECT_EQ(chat.max_tokens, 9);
  EXPECT_THAT(chat.stop, ElementsAre("END"));
  EXPECT_EQ(chat.temperature, 0.5);
  EXPECT_EQ(chat.top_k, 3);
  EXPECT_EQ(chat.min_p, 0.1);
  EXPECT_EQ(chat.user, "u1");
  EXPECT_FALSE(chat.stream);
  EXPECT_FALSE(chat.continue_final_message);
}

TEST(AnthropicRequest, ABudgetBoundsItsThoughts) {
  const auto asked = [](const std::string& thinking) {
    return core_request(kMessages, R"({"model": "m", "max_tokens": 9, "thinking": )" + thinking +
                                       R"(, "messages": [{"role": "user", "content": "Hi"}]})");
  };
  const GenerateRequest on = asked(R"({"type": "enabled", "budget_tokens": 1024})");
  EXPECT_EQ(on.thinking_token_budget, 1024);
  EXPECT_EQ(on.chat_template_kwargs_json, R"({"enable_thinking":true})");
  const GenerateRequest off = asked(R"({"type": "disabled"})");
  EXPECT_EQ(off.thinking_token_budget, std::nullopt);
  EXPECT_EQ(off.chat_template_kwargs_json, R"({"enable_thinking":false})");
}

TEST(AnthropicRequest, ResultsOfToolsBecomeMessagesOfTheirOwn) {
  const GenerateRequest chat = core_request(kMessages, R"({
    "model": "m", "max_tokens": 9, "stream": true,
    "tools": [{"name": "look", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
    "messages": [
      {"role": "user", "content": "Look!"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t1", "name": "look",
        "input": {"at": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
        "content": [{"type": "text", "text": "a door"}]},
        {"type": "text", "text": "And?"}]}]})");
  ASSERT_EQ(chat.messages.size(), 4u);
  EXPECT_EQ(chat.messages[1].role, Role::kAssistant);
  EXPECT_EQ(chat.messages[1].content, "I look.");
  EXPECT_THAT(chat.messages[1].extra_json, HasSubstr(R"("arguments":"{\"at\":1}")"));
  EXPECT_THAT(chat.messages[1].extra_json, HasSubstr(R"("reasoning_content":"hm")"));
  EXPECT_EQ(chat.messages[2].role, Role::kTool);
  EXPECT_EQ(chat.messages[2].content, "a door");
  EXPECT_THAT(chat.messages[2].extra_json, HasSubstr(R"("tool_call_id":"t1")"));
  EXPECT_EQ(chat.messages[3].content, "And?");
  EXPECT_THAT(chat.tools_json, HasSubstr(R"("parameters":{"type":"object"})"));
  EXPECT_FALSE(chat.parallel_tool_calls);
  EXPECT_TRUE(chat.stream && chat.continuous_usage);
}

// Templates that copy a call's arguments show the model what it wrote itself.
TEST(AnthropicRequest, FractionsInACallStayDecimal) {
  const GenerateRequest chat = core_request(kMessages, R"({"model": "m", "max_tokens": 9, "messages": [
      {"role": "user", "content": "Buy!"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "buy", "input":
        {"price": 19.99, "all": [1.0, -0.5, 3, {}, [], "a\"b", null, true], "small": 1e-9}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}]})");
  ASSERT_EQ(chat.messages.size(), 3u);
  const auto extra = parse_json(chat.messages[1].extra_json);
  ASSERT_TRUE(extra.ok());
  EXPECT_EQ(extra->at("tool_calls").at(0).at("function").at("arguments").as_string(),
            R"({"price":19.99,"all":[1.0,-0.5,3,{},[],"a\"b",null,true],"small":1e-09})");
}

TEST(AnthropicRequest, GoesOnWithAnAssistantsLastMessage) {
  const GenerateRequest chat = core_request(kMessages, R"({"model": "m", "max_tokens": 9,
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well,"}]})");
  EXPECT_TRUE(chat.continue_final_message);
}

TEST(AnthropicRequest, ThinkingIsTheTemplatesSwitch) {
  const GenerateRequest chat =
      core_request(kMessages, R"({"model": "m", "max_tokens": 9, "thinking": {"type": "disabled"},
    "messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(chat.chat_template_kwargs_json, R"({"enable_thinking":false})");
}

TEST(AnthropicRequest, ErrorsNameTheClientsField) {
  const std::string tail = R"("messages": [{"role": "user", "content": "Hi"}]})";
  const std::pair<std::string, std::string> cases[] = {
      {"[]", ""},
      {R"({"max_tokens": 1})", "messages"},
      {"{" + tail, "max_tokens"},
      {R"({"max_tokens": 1, "messages": []})", "messages"},
      {R"({"max_tokens": "x", )" + tail, "max_tokens"},
      {R"({"max_tokens": 1, "model": 3, )" + tail, "model"},
      {R"({"max_tokens": 1, "system": 3, )" + tail, "system"},
      {R"({"max_tokens": 1, "system": [{"type": "image"}], )" + tail, "system[0].type"},
      {R"({"max_tokens": 1, "messages": [{"role": "wizard", "content": "x"}]})", "messages[0].role"},
      {R"({"max_tokens": 1, "messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
       "messages[0].content[0].type"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text"}]}]})",
       "messages[0].content[0].text"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]})",
       "messages[0].content[0].tool_use_id"},
      {R"({"max_tokens": 1, "messages": [{"role": "assistant", "content": [{"type": "tool_use",
        "id": "a", "name": "b", "input": "x"}]}]})",
       "messages[0].content[0].input"},
      {R"({"max_tokens": 1, "stop_sequences": [3], )" + tail, "stop_sequences[0]"},
      {R"({"max_tokens": 1, "stop_sequences": "", )" + tail, "stop_sequences"},
      {R"({"max_tokens": 1, "stream": "yes", )" + tail, "stream"},
      {R"({"max_tokens": 1, "temperature": 9, )" + tail, "temperature"},
      {R"({"max_tokens": 1, "tools": [{"type": "web_search_20250305", "name": "s"}], )" + tail,
       "tools[0].type"},
      {R"({"max_tokens": 1, "tools": [{"name": "s"}], )" + tail, "tools[0].input_schema"},
      {R"({"max_tokens": 1, "tool_choice": {"type": "maybe"}, )" + tail, "tool_choice.type"},
      {R"({"max_tokens": 1, "thinking": {"type": "deep"}, )" + tail, "thinking.type"},
      {R"({"max_tokens": 1, "metadata": {"user_id": 3}, )" + tail, "metadata.user_id"},
      {R"({"max_tokens": 1, "mcp_servers": [{"url": "x"}], )" + tail, "mcp_servers"},
  };
  for (const auto& [body, param] : cases) {
    const AnswerError error = refusal(kMessages, body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, param) << body << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(param.substr(0, param.find('[')))) << body;
  }
}

TEST(AnthropicRequest, CountsWhatAChatIsMadeOf) {
  auto count = dialects_test::translate("/v1/messages/count_tokens", R"({"model": "m", "system": "S",
    "messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "look", "input_schema": {}}]})");
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(count->path, "/tokenize");
  EXPECT_EQ(count->answer->whole(parse_json(R"({"count": 12, "tokens": []})")->get_object()),
            R"({"input_tokens":12})");
}

TEST(AnthropicAnswer, WholeHasItsBlocksInOrder) {
  const auto body =
      parse_json(R"({"id": "chatcmpl-ab", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes.", "reasoning": "hm",
      "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look",
        "arguments": "{\"at\":1}"}}]},
      "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 16}}})");
  auto answer = dialect::anthropic::make_answer();
  EXPECT_EQ(answer->whole(body->get_object()),
            R"({"id":"msg_ab","type":"message","role":"assistant","model":"m","content":[)"
            R"({"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"Yes."},)"
            R"({"type":"tool_use","id":"c1","name":"look","input":{"at":1}}],"stop_reason":"tool_use",)"
            R"("stop_sequence":null,"usage":{"input_tokens":4,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":16,"output_tokens":5}})");
}

const std::vector<std::string>& deltas() {
  static const std::vector<std::string> all{
      R"({"role":"assistant","reasoning":"hm"})",
      R"({"content":"Ye"})",
      R"({"content":"s, \"é\"."})",
      R"({"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"look","arguments":""}}]})",
      R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":1}"}}]})",
      R"({"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"go","arguments":"{}"}}]})"};
  return all;
}

TEST(AnthropicAnswer, StreamOpensAndClosesEveryBlock) {
  auto answer = dialect::anthropic::make_answer();
  const std::string events = said(*answer, chat_stream(deltas(), "tool_calls"));
  EXPECT_THAT(
      dialects_test::names_of(events),
      ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                  "content_block_delta", "content_block_stop", "content_block_start", "content_block_delta",
                  "content_block_delta", "content_block_stop", "content_block_start", "content_block_delta",
                  "content_block_stop", "content_block_start", "content_block_delta", "content_block_stop",
                  "message_delta", "message_stop"));
  const bj::array data = dialects_test::data_of(events);
  EXPECT_EQ(data[0].at("message").at("usage").at("input_tokens"), 4);
  EXPECT_EQ(data[0].at("message").at("id"), "msg_ab12");
  EXPECT_EQ(data[6].at("index"), 1);
  EXPECT_EQ(data[13].at("content_block").at("name"), "go");
  EXPECT_EQ(data[16].at("delta").at("stop_reason"), "tool_use");
  EXPECT_EQ(data[16].at("usage").at("output_tokens"), 3);
}

TEST(AnthropicAnswer, StreamIsTheSameHoweverItIsCut) {
  const std::string stream = chat_stream(deltas(), "length");
  auto whole = dialect::anthropic::make_answer();
  const std::string expected = said(*whole, stream);
  for (size_t step = 1; step < 40; ++step) {
    auto answer = dialect::anthropic::make_answer();
    EXPECT_EQ(said(*answer, stream, step), expected) << step;
  }
}

TEST(AnthropicAnswer, AStreamThatSaysNothingHasItsBeginningToo) {
  auto answer = dialect::anthropic::make_answer();
  EXPECT_THAT(dialects_test::names_of(said(*answer, "data: [DONE]\n\n")),
              ElementsAre("message_start", "ping", "message_delta", "message_stop"));
}

TEST(AnthropicAnswer, AnErrorEndsAStream) {
  auto answer = dialect::anthropic::make_answer();
  const std::string events = said(
      *answer, R"(data: {"error":{"message":"m","type":"server_error","param":null,"code":"unavailable"}})"
               "\n\ndata: [DONE]\n\n");
  EXPECT_EQ(events,
            "event: error\ndata: "
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n");
}

}  // namespace
}  // namespace troupe
