// Foreign workers that answer a request for a stream with a whole answer, or with events under another
// content type.

#include <gmock/gmock.h>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::whole_for_stream {
namespace {

constexpr size_t kAtOnce = size_t{1} << 30;

Task<void> answer_in_pieces(Exchange& exchange, std::string type, std::string body, size_t piece_bytes) {
  HeaderList headers;
  if (!type.empty()) headers.emplace_back("content-type", type);
  co_await exchange.start(200, headers);
  for (size_t at = 0; at < body.size(); at += std::min(piece_bytes, body.size())) {
    const std::string piece = body.substr(at, piece_bytes);
    co_await exchange.write(piece);
  }
  co_await exchange.finish();
}

StubAnswer gives(const std::string& type, const std::string& body, size_t piece_bytes = kAtOnce) {
  return [=](StubWorker&, Exchange& exchange) { return answer_in_pieces(exchange, type, body, piece_bytes); };
}

const std::string kJsonType = "application/json; charset=utf-8";
const std::string kWholeAnswer =
    R"({"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,)"
    R"("completion_tokens":1}})";
const std::string kChunk = R"({"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]})";
const std::string kLastEvent = "data: [DONE]\n\n";
const std::string kGoodStream = "data: " + kChunk + "\n\n" + kLastEvent;

std::string ask_for_stream(int i = 0) {
  return chat_body("persona " + std::to_string(i), "x", true);
}

Answer post_to(const TestGateway& gateway, const std::string& path, const std::string& body) {
  RawPeer peer = gateway.connect();
  peer.send(http_post(path, body));
  return read_answer(peer);
}

TEST(WholeForStream, IsPassedOnAsItCameWhereNoWorkerStreams) {
  const std::string message = R"({"content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"})";
  const std::string response = R"({"object":"response","status":"completed","output":[]})";
  for (const auto& [path, whole] : {std::pair<std::string, std::string>{"/v1/chat/completions", kWholeAnswer},
                                    {"/v1/messages", message},
                                    {"/v1/responses", response}}) {
    for (const size_t workers : {size_t{1}, size_t{2}}) {
      Loop loop;
      StubWorker a(loop, gives(kJsonType, whole)), b(loop, gives(kJsonType, whole));
      TestGateway gateway(loop, workers == 1 ? std::vector<Upstream>{a.endpoint()}
                                             : std::vector<Upstream>{a.endpoint(), b.endpoint()});
      for (int i = 0; i < 12; ++i) {
        const Answer answer = post_to(gateway, path, ask_for_stream(i));
        ASSERT_EQ(answer.status, 200) << path << answer.body;
        EXPECT_EQ(answer.body, whole);
        EXPECT_EQ(answer.header("content-type"), kJsonType);
        EXPECT_EQ(answer.route("attempt"), std::to_string(workers));
      }
      EXPECT_EQ(gateway.metric("troupe_gateway_requests_total{code=\"200\"}"), 12);
      EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 0);
      EXPECT_THAT(gateway.admin("/admin/workers").body, testing::Not(testing::HasSubstr("\"failing\":true")))
          << path;
    }
  }
}

TEST(WholeForStream, IsPassedOnThoughAnotherWorkerFailsAfterIt) {
  for (const int status : {404, 429, 500, 0}) {
    Loop loop;
    StubWorker good(loop, gives(kJsonType, kWholeAnswer)), bad(loop, answer_status(status));
    if (status == 0)
      bad.answer = [](StubWorker&, Exchange& exchange) {
        exchange.cut();
        return exchange.finish();
      };
    TestGateway gateway(loop, {good.endpoint(), bad.endpoint()});
    for (int i = 0; i < 12; ++i) {
      const Answer answer = gateway.ask(ask_for_stream(i));
      ASSERT_EQ(answer.status, 200) << status << answer.body;
      EXPECT_EQ(answer.body, kWholeAnswer);
      EXPECT_EQ(answer.route("node"), good.id());
    }
    EXPECT_GT(loop.call([&] { return bad.seen.size(); }), 0u) << status << ": nothing was shown";
  }
}

TEST(WholeForStream, IsNotComputedTwiceForAClientThatForbidsIt) {
  Loop loop;
  StubWorker a(loop, gives(kJsonType, kWholeAnswer)), b(loop, gives(kJsonType, kWholeAnswer));
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
  const Answer answer = gateway.ask(ask_for_stream(), "x-troupe-retry: connect\r\n");
  EXPECT_EQ(answer.body, kWholeAnswer);
  EXPECT_EQ(answer.route("attempt"), "1");
}

// The model's name is the client's, as in a stream.
TEST(WholeForStream, NamesTheModelAsTheClientDid) {
  Loop loop;
  StubWorker stub(loop, gives(kJsonType, R"({"model":"org/own","choices":[{"message":{"content":"a"}}]})"));
  stub.models = {"org/own"};
  Upstream worker = stub.endpoint();
  worker.models = {{"demo", "org/own"}};
  TestGateway gateway(loop, {worker});
  EXPECT_EQ(gateway.ask(ask_for_stream()).body,
            R"({"model":"demo","choices":[{"message":{"content":"a"}}]})");
}

TEST(WholeForStream, MayBeLongerThanTheGatewayHolds) {
  Loop loop;
  const std::string whole = R"({"choices":[{"message":{"content":")" + std::string(2u << 20, 'x') +
                            R"("},"finish_reason":"stop"}]})";
  StubWorker stub(loop, gives(kJsonType, whole));
  TestGateway gateway(loop, {stub.endpoint()});
  const Answer answer = gateway.ask(ask_for_stream());
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body == whole);
  loop.call([&] { stub.answer = gives("text/plain", std::string(2u << 20, 'x')); });
  EXPECT_EQ(gateway.ask(ask_for_stream()).status, 502) << "no answer of any form";
}

TEST(EventsUnderAnotherType, AreAStream) {
  const std::string mark = "\xef\xbb\xbf";
  for (const std::string type : {"", "application/json", "text/plain; charset=utf-8"}) {
    for (const std::string first : {"", ": hi\n\n", "retry: 9\n\n", "id: 1\n", "event: message\n", ":\n\n"}) {
      for (const size_t piece_bytes : {kAtOnce, size_t{1}}) {
        for (const bool marked : {false, true}) {
          Loop loop;
          StubWorker stub(loop, gives(type, (marked ? mark : "") + first + kGoodStream, piece_bytes));
          TestGateway gateway(loop, {stub.endpoint()});
          const Answer answer = gateway.ask(ask_for_stream());
          ASSERT_EQ(answer.status, 200) << type << first << answer.body;
          EXPECT_EQ(answer.body, first + kGoodStream) << type << marked;
          EXPECT_EQ(answer.header("content-type"), "text/event-stream");
          EXPECT_TRUE(answer.complete);
        }
      }
    }
  }
}

TEST(EventsUnderAnotherType, AreJudgedAsAStreamIs) {
  for (const std::string bad :
       {"data: {\"error\":{\"message\":\"boom\"}}\n\n", ": hi\n\n", "data: [DONE]\n\n"}) {
    Loop loop;
    StubWorker stub(loop, gives("text/plain", bad)), good(loop, gives("", kGoodStream));
    TestGateway gateway(loop, {stub.endpoint(), good.endpoint()});
    for (int i = 0; i < 12; ++i) EXPECT_EQ(gateway.ask(ask_for_stream(i)).body, kGoodStream) << bad;
    EXPECT_GT(loop.call([&] { return stub.seen.size(); }), 0u);
  }
}

// Other texts with a colon are no events.
TEST(EventsUnderAnotherType, AreNoOtherLines) {
  for (const std::string body :
       {"datum: 1\n\n", "retry-after: 1\n", "data", "ida: 2\n\n", "", "\xef\xbb", "id"}) {
    Loop loop;
    StubWorker stub(loop, gives("text/plain", body, 1));
    TestGateway gateway(loop, {stub.endpoint()});
    const Answer answer = gateway.ask(ask_for_stream());
    EXPECT_EQ(answer.status, 502) << body;
    EXPECT_THAT(answer.body, testing::HasSubstr("did not stream"));
  }
}

std::string ask_for_whole(int i = 0) {
  return chat_body("persona " + std::to_string(i), "x", false);
}

TEST(EventsForWhole, AreNoAnswer) {
  const std::string message = R"({"content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"})";
  const std::string response = R"({"object":"response","status":"completed","output":[]})";
  for (const auto& [path, whole] : {std::pair<std::string, std::string>{"/v1/chat/completions", kWholeAnswer},
                                    {"/v1/messages", message},
                                    {"/v1/responses", response}}) {
    Loop loop;
    StubWorker streams(loop, gives("text/event-stream", kGoodStream)), good(loop, gives(kJsonType, whole));
    TestGateway both(loop, {streams.endpoint(), good.endpoint()});
    for (int i = 0; i < 12; ++i) {
      const Answer answer = post_to(both, path, ask_for_whole(i));
      ASSERT_EQ(answer.status, 200) << path << answer.body;
      EXPECT_EQ(answer.body, whole);
    }
    EXPECT_GT(loop.call([&] { return streams.seen.size(); }), 0u) << path << ": nothing was shown";
    TestGateway alone(loop, {streams.endpoint()});
    const Answer refused =
        post_to(alone, path, R"({"model":"demo","messages":[{"role":"user","content":"x"}]})");
    EXPECT_EQ(refused.status, 502) << path;
    EXPECT_THAT(refused.body, testing::HasSubstr("streamed its answer, where a whole one was asked for"));
  }
}

// A server in another language may have read that as a stream; and of other paths nothing is known.
TEST(EventsForWhole, ArePassedOnWhereTheyMayHaveBeenAskedFor) {
  const std::pair<std::string, std::string> asked[] = {
      {"/v1/responses", R"({"model":"demo","stream":"true"})"},
      {"/v1/responses", R"({"model":"demo","Stream":true})"},
      {"/v1/audio/speech", R"({"model":"demo","stream_format":"sse"})"}};
  for (const auto& [path, body] : asked) {
    Loop loop;
    StubWorker streams(loop, gives("text/event-stream", kGoodStream));
    TestGateway gateway(loop, {streams.endpoint()});
    const Answer answer = post_to(gateway, path, body);
    EXPECT_EQ(answer.status, 200) << path << answer.body;
    EXPECT_EQ(answer.body, kGoodStream);
  }
}

}  // namespace
}  // namespace troupe::gateway_test::whole_for_stream
