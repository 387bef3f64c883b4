// The Responses API ↔ a chat, without sockets.

#include "common/dialects/responses/responses.h"

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

constexpr std::string_view kResponses = "/v1/responses";

TEST(ResponsesRequest, ATextIsWhatAUserSays) {
  const GenerateRequest chat =
      core_request(kResponses, R"({"model": "m", "input": "Hi", "instructions": "Be Ruvo.",
    "max_output_tokens": 9, "store": true, "stream": true, "top_p": 0.5, "prompt_cache_key": "s1",
        "safety_identifier": "u"})");
  ASSERT_EQ(chat.messages.size(), 2u);
  EXPECT_EQ(chat.messages[0].role, Role::kSystem);
  EXPECT_EQ(chat.messages[1].content, "Hi");
  EXPECT_EQ(chat.max_tokens, 9);
  EXPECT_EQ(chat.prompt_cache_key, "s1");
  EXPECT_EQ(chat.user, "u");
  EXPECT_TRUE(chat.stream && chat.include_usage);
}

TEST(ResponsesRequest, ReasoningIsTheChats) {
  const GenerateRequest chat = core_request(
      kResponses, R"({"model": "m", "input": "Hi", "reasoning": {"effort": "low", "max_tokens": 64}})");
  EXPECT_EQ(chat.reasoning_effort, "low");
  EXPECT_EQ(chat.thinking_token_budget, 64);
}

TEST(ResponsesRequest, ItemsOfATurnBecomeOneMessage) {
  const GenerateRequest chat = core_request(kResponses, R"({"model": "m", "input": [
    {"role": "user", "content": [{"type": "input_text", "text": "Look!"}]},
    {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "id": "x", "status": "completed",
        "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call", "call_id": "c2", "name": "go", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a door"}],
    "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": false}]})");
  ASSERT_EQ(chat.messages.size(), 3u);
  EXPECT_EQ(chat.messages[1].content, "I look.");
  EXPECT_THAT(chat.messages[1].extra_json, HasSubstr(R"("reasoning_content":"hm")"));
  EXPECT_THAT(chat.messages[1].extra_json, HasSubstr(R"("id":"c2")"));
  EXPECT_EQ(chat.messages[2].role, Role::kTool);
  EXPECT_EQ(chat.messages[2].content, "a door");
  EXPECT_THAT(chat.tools_json, HasSubstr(R"("function":{"name":"look")"));
}

TEST(ResponsesRequest, ErrorsNameTheClientsField) {
  const std::pair<std::string, std::string> cases[] = {
      {"3", ""},
      {R"({"model": "m"})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": [3]})", "input[0]"},
      {R"({"input": [{"role": "user"}]})", "input[0].content"},
      {R"({"input": [{"role": "wizard", "content": "x"}]})", "input[0].role"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})", "input[0].content[0].type"},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0]"},
      {R"({"input": [{"type": "web_search_call"}]})", "input[0].type"},
      {R"({"input": [{"type": "function_call", "name": "x", "arguments": "{}"}]})", "input[0].call_id"},
      {R"({"input": "x", "previous_response_id": "resp_1"})", "previous_response_id"},
      {R"({"input": "x", "conversation": "c"})", "conversation"},
      {R"({"input": "x", "background": true})", "background"},
      {R"({"input": "x", "truncation": "sideways"})", "truncation"},
      {R"({"input": "x", "store": 3})", "store"},
      {R"({"input": "x", "max_output_tokens": 0})", "max_output_tokens"},
      {R"({"input": "x", "temperature": "warm"})", "temperature"},
      {R"({"input": "x", "tools": [{"type": "web_search"}]})", "tools[0].type"},
      {R"({"input": "x", "tool_choice": {"type": "hosted"}})", "tool_choice.type"},
      {R"({"input": "x", "text": {"format": {"type": "xml"}}})", "text.format.type"},
      {R"({"input": "x", "text": {"format": {"type": "json_schema", "name": "a"}}})", "text.format.schema"},
      {R"({"input": "x", "text": {"verbosity": "low"}})", "text.verbosity"},
      {R"({"input": [{"type": "reasoning", "summary": []}]})", "input"},
      {R"({"input": "x", "tools": [{"type": "function", "name": "f"}],
           "tool_choice": {"type": "function", "name": "g"}})",
       "tool_choice.name"},
  };
  for (const auto& [body, param] : cases) {
    const AnswerError error = refusal(kResponses, body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, param) << body << ": " << error.message;
  }
}

const std::vector<std::string>& response_deltas() {
  static const std::vector<std::string> all{
      R"({"role":"assistant","reasoning":"hm"})", R"({"content":"Ye"})", R"({"content":"s, é."})",
      R"({"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"look","arguments":""}}]})",
      R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":1}"}}]})"};
  return all;
}

TEST(ResponsesAnswer, StreamNumbersItsEvents) {
  auto answer = dialect::responses::make_refusal();
  const std::string events = said(*answer, chat_stream(response_deltas(), "stop"));
  EXPECT_THAT(
      dialects_test::names_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
                  "response.output_item.added", "response.content_part.added", "response.output_text.delta",
                  "response.output_text.delta", "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  const bj::array data = dialects_test::data_of(events);
  for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i].at("sequence_number"), i);
  const bj::value& last = data[19].at("response");
  EXPECT_EQ(last.at("id"), "resp_ab12");
  EXPECT_EQ(last.at("status"), "completed");
  EXPECT_EQ(last.at("output").get_array().size(), 3u);
  EXPECT_EQ(last.at("output").at(1).at("content").at(0).at("text"), "Yes, é.");
  EXPECT_EQ(last.at("output").at(2).at("arguments"), R"({"at":1})");
  EXPECT_EQ(last.at("usage").at("input_tokens_details").at("cached_tokens"), 16);
  EXPECT_EQ(last.at("store"), false);
}

TEST(ResponsesAnswer, StreamIsTheSameHoweverItIsCut) {
  const std::string stream = chat_stream(response_deltas(), "length");
  auto whole = dialect::responses::make_refusal();
  const std::string expected = said(*whole, stream);
  EXPECT_THAT(expected, HasSubstr(R"("incomplete_details":{"reason":"max_output_tokens"})"));
  for (size_t step = 1; step < 40; ++step) {
    auto answer = dialect::responses::make_refusal();
    EXPECT_EQ(said(*answer, stream, step), expected) << step;
  }
}

TEST(ResponsesAnswer, AWholeAnswerIsWhatItsStreamHasComeTo) {
  auto streamed = dialect::responses::make_refusal();
  const bj::array data = dialects_test::data_of(said(*streamed, chat_stream(response_deltas(), "stop")));
  auto whole = dialect::responses::make_refusal();
  const auto body = parse_json(R"({"id": "chatcmpl-ab12", "created": 7, "model": "m", "choices": [{"index": 0,
    "message": {"role": "assistant", "content": "Yes, é.", "reasoning": "hm", "tool_calls": [{"id": "c1",
    "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}}]}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 16}}})");
  EXPECT_EQ(*parse_json(whole->whole(body->get_object())), data[data.size() - 1].at("response"));
}

TEST(ResponsesAnswer, AStreamThatSaysNothingHasItsBeginningToo) {
  auto answer = dialect::responses::make_refusal();
  EXPECT_THAT(dialects_test::names_of(said(*answer, "data: [DONE]\n\n")),
              ElementsAre("response.created", "response.in_progress", "response.completed"));
}

TEST(ResponsesAnswer, AnErrorEndsAStream) {
  auto answer = dialect::responses::make_refusal();
  const std::string events = said(
      *answer, R"(data: {"error":{"message":"m","type":"server_error","param":null,"code":"unavailable"}})"
               "\n\n");
  EXPECT_THAT(events, HasSubstr("event: error\n"));
  const bj::array data = dialects_test::data_of(events);
  EXPECT_EQ(data[0].at("code"), "unavailable");
  EXPECT_EQ(data[0].at("error").at("message"), "m");
}

}  // namespace
}  // namespace troupe
