// One of two foreign workers is at fault, each in its own way: no request that the other can answer fails,
// and the one at fault attracts no traffic by failing fast.

#include <gmock/gmock.h>

#include "common/json/json.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Task<void> write_stream(Exchange& exchange, std::string events, bool cuts) {
  co_await begin_stream(exchange);
  co_await exchange.write(events);
  if (cuts) co_return exchange.cut();
  co_await exchange.finish();
}

StubAnswer streams(const std::string& events, bool cuts = false) {
  return [events, cuts](StubWorker&, Exchange& exchange) { return write_stream(exchange, events, cuts); };
}

bool asks_stream(const Exchange& exchange) {
  return exchange.request().body.find("\"stream\":true") != std::string::npos;
}

Task<void> answer_either(StubWorker& stub, Exchange& exchange) {
  return asks_stream(exchange) ? answer_stream(stub, exchange) : answer_whole(stub, exchange);
}

Task<void> answer_empty(Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.respond(200, headers, "");
}

struct Fault {
  std::string name;
  StubAnswer answer;
  bool of_streams = true, of_whole = true;
};

std::vector<Fault> faults() {
  const std::string boom = R"({"error": {"message": "boom"}})";
  return {
      {"401", answer_status(401)},
      {"403", answer_status(403)},
      {"404", answer_status(404)},
      {"500", answer_status(500)},
      {"503", answer_status(503)},
      {"429", answer_status(429)},
      {"nothing in a stream", streams("")},
      {"a comment and the end", streams(": ping\n\n"), true, false},
      {"a comment and a cut", streams(": ping\n\n", true), true, false},
      {"a cut head", streams("", true)},
      {"an error event", streams("data: " + boom + "\n\n"), true, false},
      {"an error event after a comment", streams(": ping\n\nevent: error\ndata: " + boom + "\n\n"), true,
       false},
      {"an error event of llama.cpp", streams("error: {\"code\": 500, \"message\": \"boom\"}\n\n"), true,
       false},
      {"an empty answer", [](StubWorker&, Exchange& exchange) { return answer_empty(exchange); }, false,
       true},
  };
}

TEST(ForeignFaults, NoRequestFailsThatAnotherWorkerCanAnswer) {
  for (const Fault& fault : faults()) {
    for (const bool stream : {true, false}) {
      if (stream ? !fault.of_streams : !fault.of_whole) continue;
      Loop loop;
      StubWorker bad(loop, fault.answer);
      StubWorker good(loop,
                      [](StubWorker& stub, Exchange& exchange) { return answer_either(stub, exchange); });
      TestGateway gateway(loop, {bad.endpoint(), good.endpoint()});
      for (int i = 0; i < 40; ++i) {
        const Answer answer = gateway.ask(chat_body("persona " + std::to_string(i), "x", stream));
        ASSERT_EQ(answer.status, 200) << fault.name << (stream ? ", stream " : ", whole ") << answer.body;
        ASSERT_TRUE(!stream || answer.body.ends_with("data: [DONE]\n\n")) << fault.name << answer.body;
        ASSERT_THAT(answer.body, Not(HasSubstr("boom"))) << fault.name;
      }
      const size_t asked = loop.call([&] { return bad.seen.size(); });
      EXPECT_GT(asked, 0u) << fault.name << ": it was never asked, so nothing was shown";
      const size_t most = fault.name == "503" ? 40 : 20;  // which is load, and no fault
      EXPECT_LE(asked, most) << fault.name << (stream ? ", stream" : ", whole");
    }
  }
}

TEST(ForeignFaults, StreamThatIsCutAfterItsFirstTokenEndsWithAnErrorEvent) {
  const std::string token =
      "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
  for (const bool cuts : {true, false}) {
    Loop loop;
    StubWorker stub(loop, streams(token, cuts));
    TestGateway gateway(loop, {stub.endpoint()});
    const Answer answer = gateway.ask(chat_body("card", "x", true));
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body.starts_with(token)) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("\"error\""));
    EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
    EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 1);
  }
}

TEST(ForeignFaults, StreamWithAFinishReasonAndWithoutDoneIsWhole) {
  Loop loop;
  const std::string events =
      "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
  StubWorker stub(loop, streams(events));
  TestGateway gateway(loop, {stub.endpoint()});
  EXPECT_EQ(gateway.ask(chat_body("card", "x", true)).body, events);
  EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 0);
}

// Where no other worker serves the model, what ours would refuse is theirs to judge.
TEST(ForeignFaults, WhatOnlyTheyUnderstandIsPassedOnAsItCame) {
  for (const std::string fields :
       {R"("response_format":{"type":"json_schema","json_schema":{}})", R"("tool_choice":"required")",
        R"("min_tokens":3)", R"("temperature":2.5)", R"("structured_outputs":{"json":{}})", R"("n":64)",
        R"("continue_final_message":true)", R"("return_token_ids":true)"}) {
    Loop loop;
    StubWorker theirs(loop, answer_whole), ours(loop, answer_whole);
    ours.load_status = 200;
    ours.load.epoch = "life";
    const std::string body = R"({"model":"demo","messages":[{"role":"user","content":"hi"}],)" + fields + "}";
    TestGateway foreign(loop, {theirs.endpoint()});
    EXPECT_EQ(foreign.ask(body).status, 200) << fields;
    ASSERT_EQ(theirs.seen.size(), 1u);
    EXPECT_EQ(theirs.seen[0].body, body);
    TestGateway mixed(loop, {theirs.endpoint(), ours.endpoint()});
    ASSERT_TRUE(loop.eventually([&] { return mixed.gateway->fleet().ours(1); }));
    EXPECT_EQ(mixed.ask(body).status, 400) << fields;
  }
}

TEST(ForeignFaults, PicturesArePassedOnAndEqualOnesShareASet) {
  Loop loop;
  StubWorker theirs(loop, answer_whole);
  TestGateway gateway(loop, {theirs.endpoint()});
  const auto asked = [&](const std::string& picture) {
    return gateway
        .ask(R"({"model":"demo","messages":[{"role":"system","content":[{"type":"text","text":")" +
             std::string(1500, 'c') + R"("},{"type":"image_url","image_url":{"url":")" + picture +
             R"("}}]},{"role":"user","content":"what is it?"}]})")
        .route("set");
  };
  const std::string one = asked("data:image/png;base64,AA==");
  EXPECT_NE(one, "-");
  EXPECT_EQ(asked("data:image/png;base64,AA=="), one);
  EXPECT_NE(asked("data:image/png;base64,AB=="), one);
}

}  // namespace
}  // namespace troupe::gateway_test
