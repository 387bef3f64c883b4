// Foreign workers that accept a request and stay silent, or fall silent: they send no heartbeats.

#include <gmock/gmock.h>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

const std::string kSilentCard(1300, 'h');

Task<void> say_nothing(Exchange& exchange) {
  Timer timer(exchange.executor());
  timer.expires_after(60s);
  co_await timer.async_wait(use_task);
}

Task<void> say_little(Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {\"n\":0}\n\n");
  co_await say_nothing(exchange);
}

Task<void> answer_late(StubWorker& stub, Exchange& exchange) {
  Timer timer(exchange.executor());
  timer.expires_after(700ms);
  co_await timer.async_wait(use_task);
  co_await answer_whole(stub, exchange);
}

Task<void> stream_late(StubWorker& stub, Exchange& exchange) {
  Timer timer(exchange.executor());
  timer.expires_after(700ms);
  co_await timer.async_wait(use_task);
  co_await answer_stream(stub, exchange);
}

struct TwoWorkers {
  explicit TwoWorkers(StubAnswer script)
      : a(loop, script), b(loop, script), gateway(loop, {a.endpoint(), b.endpoint()}, config()) {}
  static GatewayConfig config() {
    GatewayConfig config = TestGateway::quick_config();
    config.proxy.foreign_silence_max = 200ms;
    return config;
  }
  Loop loop;
  StubWorker a, b;
  TestGateway gateway;
};

// The worker asked first stays silent (and, if so scripted, does not answer probes either); the other one
// answers.
StubAnswer first_is_silent(StubAnswer other, int ready_status = 200, bool begins = false) {
  auto asked = std::make_shared<int>(0);
  return [=](StubWorker& stub, Exchange& exchange) {
    if ((*asked)++ > 0) return other(stub, exchange);
    stub.ready_status = ready_status;
    return begins ? say_little(exchange) : say_nothing(exchange);
  };
}

// It is asked after, and its probes are answered: it may only be full.
TEST(ForeignStall, StreamMayBeginLateWhileProbesAreAnswered) {
  TwoWorkers workers([](StubWorker& stub, Exchange& exchange) { return stream_late(stub, exchange); });
  const Answer answer = workers.gateway.ask(chat_body(kSilentCard, "x", true));
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
  EXPECT_EQ(answer.route("attempt"), "1");
}

TEST(ForeignStall, StreamThatDoesNotBeginIsRetriedElsewhereWhereProbesFailToo) {
  TwoWorkers workers(first_is_silent(answer_stream, 500));
  const Answer answer = workers.gateway.ask(chat_body(kSilentCard, "x", true));
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
  EXPECT_EQ(answer.route("attempt"), "2");
}

TEST(ForeignStall, WholeAnswerMayBeSlowWhileProbesAreAnswered) {
  TwoWorkers workers(answer_late);
  const Answer answer = workers.gateway.ask(chat_body(kSilentCard, "x"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.route("attempt"), "1");
}

TEST(ForeignStall, WholeAnswerIsRetriedElsewhereWhenProbesFailToo) {
  TwoWorkers workers(first_is_silent(answer_whole, 500));
  const Answer answer = workers.gateway.ask(chat_body(kSilentCard, "x"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.route("attempt"), "2");
}

TEST(ForeignStall, StartedStreamOfADeadWorkerEndsWithAnError) {
  TwoWorkers workers(first_is_silent(answer_stream, 500, true));
  const Answer answer = workers.gateway.ask(chat_body(kSilentCard, "x", true));
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, ::testing::StartsWith("data: {\"n\":0}\n\n"));
  EXPECT_THAT(answer.body, ::testing::HasSubstr("fell silent"));
  EXPECT_THAT(answer.body, ::testing::Not(::testing::HasSubstr("[DONE]")));
}

TEST(ForeignStall, StalledStreamEndsWithAnErrorThoughProbesAreAnswered) {
  Loop loop;
  StubWorker stub(loop, [](StubWorker&, Exchange& exchange) { return say_little(exchange); });
  for (const bool silence_bound : {true, false}) {
    GatewayConfig config = TwoWorkers::config();
    if (!silence_bound) config.proxy.foreign_silence_max = 0ms;
    config.proxy.foreign_stall_max = 600ms;
    TestGateway gateway(loop, {stub.endpoint()}, config);
    const TimePoint asked = now();
    const Answer answer = gateway.ask(chat_body(kSilentCard, "x", true));
    EXPECT_GT(now() - asked, 550ms);
    EXPECT_LT(now() - asked, 5s);
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, ::testing::StartsWith("data: {\"n\":0}\n\n"));
    EXPECT_THAT(answer.body, ::testing::HasSubstr("fell silent"));
    EXPECT_THAT(answer.body, ::testing::Not(::testing::HasSubstr("[DONE]")));
    EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 1);
  }
}

Task<void> say_role(Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n");
  co_await say_nothing(exchange);
}

// The client has nothing of it yet, so another worker can answer.
TEST(ForeignStall, StreamThatStallsBeforeItsContentIsRetriedElsewhere) {
  Loop loop;
  int asked = 0;
  const StubAnswer script = [&asked](StubWorker& stub, Exchange& exchange) {
    return asked++ == 0 ? say_role(exchange) : answer_stream(stub, exchange);
  };
  StubWorker a(loop, script), b(loop, script);
  GatewayConfig config = TwoWorkers::config();
  config.proxy.foreign_silence_max = 0ms;
  config.proxy.foreign_stall_max = 300ms;
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()}, config);
  const TimePoint began = now();
  const Answer answer = gateway.ask(chat_body(kSilentCard, "x", true));
  EXPECT_GT(now() - began, 280ms);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
  EXPECT_EQ(answer.route("attempt"), "2");
}

// Five pieces with pauses that add up to more than a stall, then the end.
Task<void> speak_slowly(Exchange& exchange, std::string type, std::string piece, std::string end) {
  HeaderList headers;
  headers.emplace_back("content-type", type);
  co_await exchange.start(200, headers);
  Timer timer(exchange.executor());
  for (int i = 0; i < 5; ++i) {
    co_await exchange.write(piece);
    timer.expires_after(300ms);
    co_await timer.async_wait(use_task);
  }
  co_await exchange.write(end);
  co_await exchange.finish();
}

// The body of an answer that is spoken so, where an answer may stall for twice a pause.
std::string slow_answer(const std::string& type, const std::string& piece, const std::string& end) {
  Loop loop;
  StubWorker stub(loop,
                  [&](StubWorker&, Exchange& exchange) { return speak_slowly(exchange, type, piece, end); });
  GatewayConfig config = TwoWorkers::config();
  config.proxy.foreign_stall_max = 600ms;
  TestGateway gateway(loop, {stub.endpoint()}, config);
  const Answer answer = gateway.ask(chat_body(kSilentCard, "x", type == "text/event-stream"));
  EXPECT_EQ(answer.status, 200);
  return answer.body;
}

TEST(ForeignStall, SlowStreamHasNotStalled) {
  const std::string done = "data: [DONE]\n\n";
  EXPECT_TRUE(slow_answer("text/event-stream", "data: {\"n\":0}\n\n", done).ends_with(done));
}

// The bytes of a whole answer are passed on at the end, and count as they come.
TEST(ForeignStall, WholeAnswerThatComesSlowlyHasNotStalled) {
  const std::string body = R"({"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]})";
  EXPECT_TRUE(slow_answer("application/json", " ", body).ends_with(body));
}

TEST(ForeignStall, OnlyWorkerIsWaitedFor) {
  Loop loop;
  StubWorker only(loop, stream_late);
  TestGateway gateway(loop, {only.endpoint()}, TwoWorkers::config());
  EXPECT_EQ(gateway.ask(chat_body(kSilentCard, "x", true)).status, 200);
}

Task<void> stay_open(Exchange& exchange, std::string last) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"type\":\"x\"}]}\n\n");
  co_await exchange.write(last);
  co_await say_nothing(exchange);
}

// The client has its answer: the worker's connection is not waited for, and nobody is to blame.
TEST(ForeignStall, AnswerEndsWithItsLastEventThoughTheConnectionStaysOpen) {
  const std::pair<std::string, std::string> lasts[] = {
      {"/v1/chat/completions", "data: [DONE]\n\n"},
      {"/v1/embeddings", "data: [DONE]\n\n"},
      {"/v1/messages", "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
      {"/v1/responses", "event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n"}};
  for (const auto& [path, last] : lasts) {
    Loop loop;
    StubWorker stub(loop,
                    [last = last](StubWorker&, Exchange& exchange) { return stay_open(exchange, last); });
    GatewayConfig config = TwoWorkers::config();
    config.proxy.foreign_stall_max = 20s;
    TestGateway gateway(loop, {stub.endpoint()}, config);
    const TimePoint asked = now();
    RawPeer peer = gateway.connect();
    peer.send(http_post(path, chat_body("card", "x", true)));
    const Answer answer = read_answer(peer);
    EXPECT_LT(now() - asked, 10s) << path;
    EXPECT_TRUE(answer.complete) << path;
    EXPECT_TRUE(answer.body.ends_with(last)) << answer.body;
    EXPECT_TRUE(loop.eventually([&] { return stub.running == 0; })) << path << ": its worker is freed";
    EXPECT_EQ(gateway.metric("troupe_gateway_requests_total{code=\"200\"}"), 1) << path;
    EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 0) << path;
  }
}

}  // namespace
}  // namespace troupe::gateway_test
