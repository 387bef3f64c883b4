// Streams whose worker says nothing for a while (sse_keepalive_ms), and clients that close at their end.

#include <gmock/gmock.h>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kKept = ": keep-alive\n\n";

Task<void> sleep_for(Exchange& exchange, Duration duration) {
  Timer timer(exchange.executor());
  timer.expires_after(duration);
  co_await timer.async_wait(use_task);
}

Task<void> answer_later(StubWorker& stub, Exchange& exchange, StubAnswer then) {
  co_await sleep_for(exchange, 250ms);
  co_await then(stub, exchange);
}

// Says nothing for a quarter of a second.
StubAnswer late(StubAnswer then) {
  return [then](StubWorker& stub, Exchange& exchange) { return answer_later(stub, exchange, then); };
}

GatewayConfig kept_config(std::chrono::milliseconds every = 60ms) {
  GatewayConfig config = TestGateway::quick_config();
  config.proxy.sse_keepalive = every;
  return config;
}

TEST(Keepalive, CommentsComeBeforeALateFirstToken) {
  Loop loop;
  StubWorker stub(loop, late(answer_stream));
  TestGateway gateway(loop, {stub.endpoint()}, kept_config());
  const Answer answer = gateway.ask(chat_body("a persona", "x", true));
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.header("content-type"), StartsWith("text/event-stream"));
  EXPECT_EQ(answer.route("node"), stub.id());
  EXPECT_THAT(answer.body, StartsWith(kKept + kKept));
  EXPECT_THAT(answer.body, HasSubstr(kKept + "data: {\"n\":0}\n\n"));
  EXPECT_THAT(answer.body, EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(gateway.metric("troupe_gateway_requests_total{code=\"200\"}"), 1);
}

TEST(Keepalive, NoneComeUnlessTheyAreAskedForOrToWholeAnswers) {
  Loop loop;
  StubWorker stub(loop, late(answer_stream));
  TestGateway gateway(loop, {stub.endpoint()}, kept_config(0ms));
  EXPECT_THAT(gateway.ask(chat_body("a persona", "x", true)).body, StartsWith("data: {\"n\":0}\n\n"));
  StubWorker whole(loop, late(answer_whole));
  TestGateway keeps(loop, {whole.endpoint()}, kept_config());
  EXPECT_THAT(keeps.ask(chat_body("a persona", "x")).body, StartsWith("{"));
}

struct Shared {
  int asked = 0;
};

Task<void> first_fails(StubWorker& stub, Exchange& exchange, Shared& shared) {
  if (shared.asked++ > 0) return answer_stream(stub, exchange);
  return answer_later(stub, exchange, answer_status(500));
}

TEST(Keepalive, AnotherWorkerIsStillTriedAfterComments) {
  Loop loop;
  Shared shared;
  const StubAnswer script = [&shared](StubWorker& stub, Exchange& e) { return first_fails(stub, e, shared); };
  StubWorker a(loop, script), b(loop, script);
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()}, kept_config());
  const Answer answer = gateway.ask(chat_body("a persona", "x", true));
  EXPECT_THAT(answer.body, StartsWith(kKept));
  EXPECT_THAT(answer.body, HasSubstr(kKept + "data: {\"n\":0}\n\n"));
  EXPECT_THAT(answer.body, EndsWith("data: [DONE]\n\n"));
  EXPECT_THAT(answer.body, Not(HasSubstr("error")));
  EXPECT_EQ(loop.call([&] { return shared.asked; }), 2);
}

TEST(Keepalive, FailuresAfterACommentAreErrorEvents) {
  struct Case {
    StubAnswer answer;
    std::string said, code;
  };
  for (const Case& one :
       {Case{answer_status(400), "stub says 400", "400"}, Case{answer_status(503), "stub says 503", "503"},
        Case{answer_whole, "did not stream", "502"}}) {
    Loop loop;
    StubWorker stub(loop, late(one.answer));
    TestGateway gateway(loop, {stub.endpoint()}, kept_config());
    const Answer answer = gateway.ask(chat_body("a persona", "x", true));
    EXPECT_EQ(answer.status, 200) << one.said;
    EXPECT_THAT(answer.body, StartsWith(kKept + kKept));
    EXPECT_THAT(answer.body, HasSubstr(kKept + "data: {\"error\":{"));
    EXPECT_THAT(answer.body, HasSubstr(one.said));
    EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
    EXPECT_TRUE(answer.complete) << one.said;
    EXPECT_EQ(gateway.metric("troupe_gateway_requests_total{code=\"" + one.code + "\"}"), 1) << one.said;
  }
}

// Longer than the gateway holds, and paused in mid-answer.
Task<void> answer_at_length(Exchange& exchange, std::string type, std::string begin, std::string end) {
  HeaderList headers;
  headers.emplace_back("content-type", type);
  co_await exchange.start(200, headers);
  co_await exchange.write(begin);
  co_await sleep_for(exchange, 1200ms);
  co_await exchange.write(end);
  co_await exchange.finish();
}

TEST(Keepalive, NoCommentsGoIntoAnAnswerThatIsNoStream) {
  const std::string much = std::string(2u << 20, 'x') + "\n\n";
  struct Case {
    bool ours;
    std::string type, begin, end;
  };
  for (const Case& one : {Case{true, "text/plain", much, "y"},
                          Case{false, "application/json", R"({"choices":[{"message":{"content":")" + much,
                               R"("},"finish_reason":"stop"}]})"}}) {
    Loop loop;
    StubWorker stub(loop, [&one](StubWorker&, Exchange& exchange) {
      return answer_at_length(exchange, one.type, one.begin, one.end);
    });
    if (one.ours) {
      stub.load_status = 200;
      stub.load.epoch = "life";
    }
    TestGateway gateway(loop, {stub.endpoint()}, kept_config(500ms));
    ASSERT_TRUE(!one.ours || loop.eventually([&] { return gateway.gateway->fleet().is_troupe_worker(0); }));
    Answer answer = gateway.ask(chat_body("a persona", "x", true));
    // A machine that is busy may be late with the head: a comment before it is a stream's.
    for (int i = 0; i < 5 && answer.header("content-type").starts_with("text/event-stream"); ++i) {
      answer = gateway.ask(chat_body("a persona", "x", true));
    }
    EXPECT_EQ(answer.status, 200) << one.type;
    EXPECT_THAT(answer.header("content-type"), StartsWith(one.type));
    EXPECT_EQ(answer.body.size(), one.begin.size() + one.end.size());
    EXPECT_THAT(answer.body, Not(HasSubstr(kKept)));
  }
}

Task<void> pause_in_an_event(StubWorker&, Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {\"n\":0}\n\ndata: {\"n\"");
  co_await sleep_for(exchange, 250ms);
  co_await exchange.write(":1}\n\ndata: [DONE]\n\n");
  co_await exchange.finish();
}

TEST(Keepalive, CommentsComeBetweenEventsNotWithin) {
  Loop loop;
  StubWorker stub(loop, pause_in_an_event);
  TestGateway gateway(loop, {stub.endpoint()}, kept_config());
  const Answer answer = gateway.ask(chat_body("a persona", "x", true));
  EXPECT_THAT(answer.body, StartsWith("data: {\"n\":0}\n\n" + kKept + kKept));
  EXPECT_THAT(answer.body, EndsWith(kKept + "data: {\"n\":1}\n\ndata: [DONE]\n\n"));
}

Task<void> linger_after_done(StubWorker& stub, Exchange& exchange, std::string last) {
  co_await begin_stream(exchange);
  const std::string events =
      "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":400,\"completion_tokens\":3}}\n\n";
  co_await exchange.write(events);
  co_await exchange.write(last);
  stub.bytes_written = 1;
  co_await sleep_for(exchange, 20s);
}

// Closes once `last` has come, which the worker does not follow by anything.
void close_at(Loop& loop, TestGateway& gateway, StubWorker& stub, const std::string& last) {
  RawPeer peer = gateway.connect();
  peer.send(http_post("/v1/chat/completions", chat_body("a persona", "x", true)));
  EXPECT_THAT(peer.read_until(last), HasSubstr(last));
  peer.close();
  EXPECT_TRUE(loop.eventually([&] { return stub.bytes_written == 1 && stub.running == 0; }));
}

TEST(ClosedAtDone, IsAnsweredAndNotCancelled) {
  const std::string cancelled = "troupe_gateway_requests_cancelled_total{reason=\"client_gone\"}";
  const std::string answered = "troupe_gateway_requests_total{code=\"200\"}";
  for (const std::string done : {"data: [DONE]\n\n", "data:[DONE]\r\n\r\n"}) {
    Loop loop;
    StubWorker stub(loop, [done](StubWorker& s, Exchange& e) { return linger_after_done(s, e, done); });
    TestGateway gateway(loop, {stub.endpoint()});
    close_at(loop, gateway, stub, done);
    EXPECT_EQ(gateway.metric(answered), 1) << done;
    EXPECT_EQ(gateway.metric(cancelled), -1) << done;
    EXPECT_EQ(loop.call([&] { return gateway.gateway->router().loads().at(0).in_flight; }), 0);
  }
  Loop loop;
  const std::string text = "data: {\"text\":\"data: [DONE]\"}\n\n";
  StubWorker stub(loop, [text](StubWorker& s, Exchange& e) { return linger_after_done(s, e, text); });
  TestGateway gateway(loop, {stub.endpoint()});
  close_at(loop, gateway, stub, text);
  EXPECT_EQ(gateway.metric(cancelled), 1) << "the words alone end nothing";
  EXPECT_EQ(gateway.metric(answered), -1);
}

}  // namespace
}  // namespace troupe::gateway_test
