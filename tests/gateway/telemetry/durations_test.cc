// Durations of requests' phases, in the metrics.

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::durations {
namespace {

constexpr auto kStep = 120ms;

std::string took(const std::string& end, const std::string& what = "count") {
  return "troupe_gateway_request_seconds_" + what + "{end=\"" + end + "\"}";
}

std::string connects(const std::string& result, const std::string& what = "count") {
  return "troupe_gateway_connect_seconds_" + what + "{result=\"" + result + "\"}";
}

// A duration is recorded when the last byte has left, which a client may have seen before.
bool comes_to(const TestGateway& gateway, const std::string& metric, double value) {
  for (int i = 0; i < 1000 && gateway.metric(metric) < value; ++i) std::this_thread::sleep_for(2ms);
  return gateway.metric(metric) == value;
}

// Its first byte at once, its last one after two steps.
Task<void> answer_slowly(StubWorker&, Exchange& exchange) {
  co_await begin_stream(exchange);
  Timer timer(exchange.executor());
  for (int i = 0; i < 2; ++i) {
    co_await exchange.write("data: {}\n\n");
    timer.expires_after(kStep);
    co_await timer.async_wait(use_task);
  }
  co_await exchange.write("data: [DONE]\n\n");
  co_await exchange.finish();
}

Task<void> break_off(StubWorker&, Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {}\n\n");
  // The connection is closed instead of a proper end.
}

TEST(Durations, CoverARequestFromItsArrivalToItsLastByte) {
  Loop loop;
  StubWorker stub(loop, answer_slowly);
  TestGateway gateway(loop, {stub.endpoint()});
  EXPECT_EQ(gateway.metric(took("answered")), 0) << "there before the first one";
  EXPECT_EQ(gateway.ask(chat_body("A persona", "x", true)).status, 200);
  ASSERT_TRUE(comes_to(gateway, took("answered"), 1));
  const double seconds = gateway.metric(took("answered", "sum"));
  EXPECT_GE(seconds, std::chrono::duration<double>(2 * kStep).count());
  EXPECT_LT(gateway.metric("troupe_gateway_time_to_first_byte_seconds_sum"), seconds);
}

TEST(Durations, AreLabelledByOutcome) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  gateway.ask("{}");
  EXPECT_TRUE(comes_to(gateway, took("refused"), 1));
  loop.call([&] { stub.answer = break_off; });
  gateway.ask(chat_body("A persona", "x", true));
  EXPECT_TRUE(comes_to(gateway, took("broken"), 1));
  loop.call([&] { stub.answer = answer_never; });
  {
    RawPeer peer = gateway.connect();
    peer.send(http_post("/v1/chat/completions", chat_body("A persona", "x")));
    ASSERT_TRUE(loop.eventually([&] { return stub.running == 1; }));
  }
  EXPECT_TRUE(comes_to(gateway, took("cancelled"), 1));
  // Other paths than chats and completions are over at once, and would only distort the durations.
  gateway.get("/v1/models");
  gateway.get("/nothing");
  RawPeer peer = gateway.connect();
  peer.send(http_post("/tokenize", "{}"));
  EXPECT_EQ(read_answer(peer).status, 400);
  EXPECT_EQ(gateway.metric(took("answered")), 0);
  EXPECT_EQ(gateway.metric(took("refused")), 1);
}

std::string computes(const std::string& phase, const std::string& what = "count") {
  return "troupe_gateway_phase_seconds_" + what + "{phase=\"" + phase + "\"}";
}

constexpr std::array kPhaseNames{"admit", "parse", "choose", "send", "relay", "settle"};

TEST(Durations, PhasesCountComputingNotWaiting) {
  Loop loop;
  StubWorker stub(loop, answer_slowly);
  TestGateway gateway(loop, {stub.endpoint()});
  for (const auto* phase : kPhaseNames) EXPECT_EQ(gateway.metric(computes(phase)), 0) << phase;
  EXPECT_EQ(gateway.ask(chat_body("A persona", "x", true)).status, 200);
  ASSERT_TRUE(comes_to(gateway, took("answered"), 1));
  double sum = 0;
  for (const auto* phase : kPhaseNames) {
    EXPECT_EQ(gateway.metric(computes(phase)), 1) << phase;
    EXPECT_GT(gateway.metric(computes(phase, "sum")), 0) << phase;
    sum += gateway.metric(computes(phase, "sum"));
  }
  EXPECT_NEAR(gateway.metric("troupe_gateway_own_seconds_sum"), sum, 1e-6);
  // Two of the stub's steps are waits. (A busy machine may stop the gateway while it computes.)
  EXPECT_LT(sum, std::chrono::duration<double>(kStep).count());
  // A request refused for its body never reaches the choice.
  gateway.ask("{}");
  ASSERT_TRUE(comes_to(gateway, took("refused"), 1));
  EXPECT_EQ(gateway.metric(computes("parse")), 2);
  EXPECT_EQ(gateway.metric(computes("choose")), 1);
  EXPECT_EQ(gateway.metric("troupe_gateway_own_seconds_count"), 2);
}

TEST(Durations, CoverNewConnectionsToWorkers) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  GatewayConfig config = TestGateway::quick_config();
  config.residency.enabled = false;  // it uses a connection of its own
  TestGateway gateway(loop, {stub.endpoint()}, config);
  const double before = gateway.metric(connects("connected"));
  EXPECT_GE(before, 1) << "the probes'";
  EXPECT_GT(gateway.metric(connects("connected", "sum")), 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(gateway.ask(chat_body("A persona", "x")).status, 200);
  const auto stats = loop.call([&] { return gateway.gateway->fleet().client(0).stats(); });
  EXPECT_GT(stats.reuses, 5u);
  EXPECT_EQ(gateway.metric(connects("connected")), static_cast<double>(stats.connects))
      << "only new ones are told";
  EXPECT_EQ(gateway.metric(connects("failed")), 0);
  TestGateway lost(loop, {dead_endpoint(loop)}, config);
  EXPECT_GE(lost.metric(connects("failed")), 1);
  EXPECT_EQ(lost.metric(connects("connected")), 0);
}

}  // namespace
}  // namespace troupe::gateway_test::durations
