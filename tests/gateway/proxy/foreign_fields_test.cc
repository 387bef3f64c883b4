// Where a model's workers are of other kinds, what they understand reaches them as it came; and what goes
// wrong in their streams, in whichever form they say so, counts as a broken answer.

#include <gmock/gmock.h>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string chat_with(const std::string& fields) {
  return R"({"model":"demo","messages":[{"role":"user","content":"hi"}],)" + fields + "}";
}

std::string of_part(const std::string& part) {
  return R"({"model":"demo","messages":[{"role":"user","content":[{"type":"text","text":"what is it?"},)" +
         part + "]}]}";
}

TEST(ForeignFields, ReachTheirWorkersAsTheyCame) {
  const std::string tool = R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}],)";
  std::string stops = "\"0\"";
  for (int i = 1; i < 17; ++i) stops += ",\"" + std::to_string(i) + "\"";
  const std::pair<std::string, std::string> kAsked[] = {
      {"/v1/chat/completions", chat_with(R"("response_format":{"type":"json_object"})")},
      {"/v1/chat/completions", chat_with(tool + R"("tool_choice":"required")")},
      {"/v1/chat/completions",
       chat_with(tool + R"("tool_choice":{"type":"function","function":{"name":"f"}})")},
      {"/v1/chat/completions",
       of_part(R"({"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}})")},
      {"/v1/chat/completions",
       of_part(R"({"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}})")},
      {"/v1/chat/completions", chat_with(R"("continue_final_message":true,"add_generation_prompt":false)")},
      {"/v1/chat/completions", chat_with("\"stop\":[" + stops + "]")},
      {"/v1/chat/completions", chat_with(R"("chat_template_kwargs":{"enable_thinking":false})")},
      {"/v1/chat/completions", chat_with(R"("rid":"x")")},
      {"/v1/chat/completions", chat_with(R"("seed":7.5,"top_k":"all","logit_bias":[[1,2]])")},
      {"/v1/completions", R"({"model":"demo","prompt":["a","b"]})"},
      {"/v1/completions", R"({"model":"demo","prompt":"a","best_of":4,"suffix":"b"})"},
  };
  Loop loop;
  StubWorker theirs(loop, answer_whole);
  TestGateway gateway(loop, {theirs.endpoint()});
  for (const auto& [path, body] : kAsked) {
    RawPeer peer = gateway.connect();
    peer.send(http_post(path, body));
    EXPECT_EQ(read_answer(peer).status, 200) << body;
    EXPECT_EQ(loop.call([&] { return theirs.seen.empty() ? "" : theirs.seen.back().body; }), body);
  }
}

TEST(ForeignFields, UsageInEveryChunkIsTheirsToSend) {
  Loop loop;
  StubWorker theirs(loop, answer_stream);
  TestGateway gateway(loop, {theirs.endpoint()});
  const std::string body =
      chat_with(R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  const Answer answer = gateway.ask(body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
  EXPECT_EQ(loop.call([&] { return theirs.seen.back().body; }), body);
}

Task<void> answer_with_error(Exchange& exchange, std::string event) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n" +
                          event);
  co_await exchange.finish();
}

TEST(ForeignErrors, InAnyShapeEndAStreamAsBroken) {
  for (const std::string event : {"data: {\"error\": {\"message\": \"boom\", \"code\": 500}}\n\n",
                                  "data:{\"error\": {\"message\": \"boom\"}}\n\n",
                                  "event: error\ndata: {\"error\": {\"message\": \"boom\"}}\n\n",
                                  "data: {\"id\": \"c\", \"error\": {\"message\": \"boom\"}}\n\n",
                                  "data: {\"object\": \"error\", \"message\": \"boom\", \"code\": 500}\n\n",
                                  "error: {\"code\": 500, \"message\": \"boom\"}\n\n"}) {
    Loop loop;
    StubWorker theirs(
        loop, [event](StubWorker&, Exchange& exchange) { return answer_with_error(exchange, event); });
    TestGateway gateway(loop, {theirs.endpoint()});
    const Answer answer = gateway.ask(chat_body("card", "x", true));
    EXPECT_EQ(answer.status, 200) << event;
    EXPECT_THAT(answer.body, HasSubstr("boom")) << event;
    EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]"))) << event;
    EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 1) << event;
  }
}

}  // namespace
}  // namespace troupe::gateway_test
