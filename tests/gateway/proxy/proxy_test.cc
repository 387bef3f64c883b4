// The gateway as clients see it, and the client as workers see it.

#include "gateway/proxy/proxy.h"

#include <set>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

const std::string kPersona(1500, 'p');

TEST(Proxy, ForwardsTheClientsBytesAndStreamsTheAnswerBack) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  const std::string body = R"({ "model" : "demo", "messages":[{"role":"system","content":"You are X."},)"
                           R"({"role":"user","content":"hi\u00e9"}], "unknown_field" : [1, 2 ] })";
  const Answer answer =
      gateway.ask(body, "x-request-id: abc-1\r\nauthorization: Bearer k\r\ntraceparent: 00-1-2-03\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find("Song Jiang"), std::string::npos);
  EXPECT_EQ(answer.header("x-request-id"), "abc-1");
  EXPECT_EQ(answer.header("x-worker"), stub.id());
  EXPECT_EQ(answer.header("x-troupe-internal"), "");
  EXPECT_EQ(answer.route("node"), stub.id());
  EXPECT_EQ(answer.route("branch"), "least");
  EXPECT_EQ(answer.route("attempt"), "1");

  ASSERT_EQ(stub.seen.size(), 1u);
  const HttpRequest& seen = stub.seen[0];
  EXPECT_EQ(seen.body, body);
  EXPECT_EQ(seen.path, "/v1/chat/completions");
  EXPECT_EQ(seen.header("x-request-id"), "abc-1");
  EXPECT_EQ(seen.header("authorization"), "Bearer k");
  EXPECT_EQ(seen.header("traceparent"), "00-1-2-03");
  EXPECT_EQ(seen.header("content-type"), "application/json");
  EXPECT_EQ(seen.header("x-troupe-set"), answer.route("set"));
  EXPECT_EQ(seen.header("x-troupe-prefix-messages"), "1");
  EXPECT_EQ(seen.header("x-troupe-session").size(), 32u);
  const int64_t left = std::atoll(std::string(seen.header("x-troupe-timeout-ms")).c_str());
  EXPECT_GT(left, 1'790'000);
  EXPECT_LE(left, 1'800'000);
}

// Example dialogues common to every conversation are part of the persona, once three have shown it.
TEST(Proxy, SendsTheLearnedPrefixToTheWorker) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  const std::string before = R"({"model":"demo","messages":[{"role":"system","content":"You are X."},)"
                             R"({"role":"user","content":"An example?"},{"role":"assistant","content":")" +
                             std::string(300, 'e') + R"("},{"role":"user","content":"question )";
  std::string set;
  for (int i = 0; i < 5; ++i) {
    const std::string number = std::to_string(i);
    const Answer answer = gateway.ask(before + number + R"("}]})", "x-session-id: s" + number + "\r\n");
    ASSERT_EQ(stub.seen.size(), static_cast<size_t>(i + 1));
    EXPECT_EQ(stub.seen.back().header("x-troupe-prefix-messages"), i < 3 ? "1" : "3");
    EXPECT_EQ(stub.seen.back().header("x-troupe-set"), answer.route("set"));
    EXPECT_EQ(answer.route("set") == set, i != 0 && i != 3);
    set = answer.route("set");
  }
}

TEST(Proxy, ClientHeadersOfTheGatewayAreDropped) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  gateway.ask(chat_body(kPersona, "hi"),
              "x-troupe-set: 00000000000000000000000000000000\r\nx-troupe-ids: 1\r\nx-mine: secret\r\n"
              "connection: keep-alive, X-Mine\r\nte: trailers\r\naccept-encoding: gzip\r\nx-yours: 1\r\n");
  ASSERT_EQ(stub.seen.size(), 1u);
  const HttpRequest& seen = stub.seen[0];
  EXPECT_NE(seen.header("x-troupe-set"), "00000000000000000000000000000000");
  for (const char* name : {"x-troupe-ids", "x-mine", "te", "accept-encoding"})
    EXPECT_EQ(seen.header(name), "") << name;
  EXPECT_EQ(seen.header("x-yours"), "1");
}

TEST(Proxy, RepeatedRequestStaysAndExpectsAHit) {
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole), c(loop, answer_whole);
  TestGateway gateway(loop, {a.endpoint(), b.endpoint(), c.endpoint()});
  std::set<std::string> nodes;
  for (int persona = 0; persona < 20; ++persona) {
    const std::string card = kPersona + std::to_string(persona);
    const Answer first = gateway.ask(chat_body(card, "Who are you?"));
    const Answer again = gateway.ask(chat_body(card, "Who are you?"));
    const Answer other_user = gateway.ask(chat_body(card, "Where do you live?"));
    EXPECT_EQ(first.route("branch"), "least");
    EXPECT_EQ(first.route("expect"), "0");
    EXPECT_EQ(again.route("branch"), "session");
    EXPECT_EQ(again.route("node"), first.route("node"));
    EXPECT_EQ(other_user.route("branch"), "home");
    EXPECT_EQ(other_user.route("node"), first.route("node")) << "a cold home was preferred to the warm one";
    EXPECT_GT(std::stoi(other_user.route("expect")), 0);
    EXPECT_EQ(other_user.route("set"), first.route("set"));
    nodes.insert(first.route("node"));
  }
  EXPECT_EQ(nodes.size(), 3u) << "20 personas on fewer than 3 nodes";
  EXPECT_GT(gateway.metric("troupe_gateway_cached_tokens_actual_total"), 0);
}

TEST(Proxy, StreamsPassUnaltered) {
  Loop loop;
  StubWorker stub(loop, answer_stream);
  GatewayConfig config = TestGateway::quick_config();
  config.residency.enabled = false;  // it uses a connection of its own
  TestGateway gateway(loop, {stub.endpoint()}, config);
  RawPeer peer = gateway.connect();
  for (int i = 0; i < 3; ++i) {  // on one kept-alive connection
    peer.send(http_post("/v1/chat/completions", chat_body(kPersona, "hi", true)));
    const Answer answer = read_answer(peer);
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(answer.header("content-type"), "text/event-stream");
    EXPECT_TRUE(answer.body.starts_with("data: {\"n\":0}\n\ndata: {\"n\":1}\n\n"));
    EXPECT_TRUE(answer.body.ends_with("\n\ndata: [DONE]\n\n"));
  }
  EXPECT_EQ(gateway.metric("troupe_gateway_cached_tokens_actual_total"), 3 * 384)
      << "the stream's usage was not seen";
  EXPECT_EQ(gateway.metric("troupe_gateway_requests_total{code=\"200\"}"), 3);
  EXPECT_EQ(gateway.metric("troupe_gateway_requests_in_flight"), 0);
  const auto stats = loop.call([&] { return gateway.gateway->fleet().client(0).stats(); });
  // (A probe that coincides with a stream has another.)
  EXPECT_LE(stats.connects, 2u) << "the upstream connection was not reused";
}

TEST(Proxy, ChatThatNamesNoModelIsOfTheOnlyOneAndOfTheSamePersona) {
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole);
  b.models = {"other"};
  const std::string messages = R"("messages":[{"role":"system","content":")" + std::string(2000, 'p') +
                               R"("},{"role":"user","content":"Hello"}])";
  const auto ask = [](TestGateway& gateway, const std::string& body) {
    RawPeer peer = gateway.connect();
    peer.send(http_post("/v1/chat/completions", body));
    return read_answer(peer);
  };
  TestGateway one(loop, {b.endpoint()});
  const Answer named = ask(one, R"({"model":"other",)" + messages + "}");
  const Answer unnamed = ask(one, "{" + messages + "}");
  EXPECT_EQ(named.status, 200);
  EXPECT_EQ(unnamed.status, 200) << unnamed.body;
  EXPECT_EQ(unnamed.route("set"), named.route("set"));
  EXPECT_EQ(one.get("/v1/models/other").status, 200);
  EXPECT_NE(one.get("/v1/models/other").body.find(R"({"id":"other","object":"model")"), std::string::npos);
  EXPECT_EQ(one.get("/v1/models/oth").status, 404);
  EXPECT_EQ(one.get("/v1/models/").body, one.get("/v1/models").body);
  TestGateway two(loop, {a.endpoint(), b.endpoint()});
  const Answer either = ask(two, "{" + messages + "}");
  EXPECT_EQ(either.status, 400);
  EXPECT_NE(either.body.find("'model' is required: 2 models"), std::string::npos) << either.body;
}

TEST(Proxy, TokenizingNeedsNoModelIfThereIsOnlyOne) {
  Loop loop;
  StubWorker a(loop, answer_tokens), b(loop, answer_tokens);
  b.models = {"other"};
  const auto ask = [](TestGateway& gateway, const std::string& path, const std::string& body) {
    RawPeer peer = gateway.connect();
    peer.send(http_post(path, body));
    return read_answer(peer);
  };
  TestGateway one(loop, {a.endpoint()});
  EXPECT_EQ(ask(one, "/tokenize", R"({"prompt":"a"})").status, 200);
  EXPECT_EQ(ask(one, "/tokenize", R"({"prompt":"a","model":"other"})").status, 404);
  EXPECT_NE(ask(one, "/tokenize", R"({"prompt":1})").body.find("'prompt' must be a string"),
            std::string::npos);
  EXPECT_EQ(ask(one, "/detokenize", "{}").status, 400);
  EXPECT_EQ(a.seen.size(), 1u) << "what is malformed is refused before a worker is bothered";
  EXPECT_EQ(one.get("/tokenize").header("allow"), "POST");
  TestGateway two(loop, {a.endpoint(), b.endpoint()});
  const Answer unnamed = ask(two, "/detokenize", R"({"tokens":[1]})");
  EXPECT_EQ(unnamed.status, 400);
  EXPECT_NE(unnamed.body.find("'model' is required: 2 models"), std::string::npos) << unnamed.body;
  EXPECT_EQ(ask(two, "/detokenize", R"({"tokens":[1],"model":"other"})").route("node"), b.id());
}

Task<void> answer_large(StubWorker& stub, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  std::string body(5u << 20, 'x');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>('a' + i % 23);
  body[0] = '{';  // (as an answer begins)
  stub.bytes_written = body.size();
  co_await exchange.respond(200, headers, std::move(body));
}

TEST(Proxy, WholeAnswerLargerThanItsBufferPassesIntact) {
  Loop loop;
  StubWorker stub(loop, answer_large);
  TestGateway gateway(loop, {stub.endpoint()});
  const Answer answer = gateway.ask(chat_body(kPersona, "hi"));
  EXPECT_EQ(answer.status, 200);
  ASSERT_EQ(answer.body.size(), 5u << 20);
  for (size_t i = 1; i < answer.body.size(); ++i)
    ASSERT_EQ(answer.body[i], static_cast<char>('a' + i % 23)) << i;
}

TEST(Proxy, RefusesInvalidRequestsInTheApisShapeWithoutAWorker) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  stub.load_status = 200;  // a worker of another kind would judge roles itself
  stub.load.epoch = "life";
  TestGateway gateway(loop, {stub.endpoint()});
  ASSERT_TRUE(loop.eventually([&] { return gateway.gateway->fleet().is_troupe_worker(0); }));
  struct Case {
    std::string body;
    int status;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"{", 400, ""},
      {R"({"model":"demo","messages":[]})", 400, "messages"},
      {R"({"model":"demo","model":"demo","messages":[{"role":"user","content":"x"}]})", 400, "model"},
      {R"({"model":"demo","messages":[{"role":"wizard","content":"x"}]})", 400, "role"},
      {R"({"model":"nobody","messages":[{"role":"user","content":"x"}]})", 404, "nobody"},
  };
  for (const Case& c : cases) {
    const Answer answer = gateway.ask(c.body);
    EXPECT_EQ(answer.status, c.status) << c.body;
    const auto error = parse_json(answer.body);
    ASSERT_TRUE(error.ok()) << answer.body;
    const auto& object = error->as_object().at("error").as_object();
    EXPECT_NE(std::string(object.at("message").as_string()).find(c.says), std::string::npos) << answer.body;
    EXPECT_TRUE(object.contains("type") && object.contains("param") && object.contains("code"));
    EXPECT_EQ(answer.route("node"), "-");
    EXPECT_EQ(answer.route("attempt"), "0");
    EXPECT_TRUE(answer.header("x-request-id").starts_with("req-"));
  }
  EXPECT_TRUE(stub.seen.empty());
  EXPECT_EQ(gateway.ask(chat_body(kPersona, "x"), "x-request-timeout-ms: soon\r\n").status, 400);
  EXPECT_EQ(gateway.ask(chat_body(kPersona, "x"), "x-request-timeout-ms: 0\r\n").status, 400);
  EXPECT_EQ(gateway.get("/nowhere").status, 404);
  EXPECT_EQ(gateway.get("/v1/chat/completions").status, 405);
}

TEST(Proxy, RefusalsOfTheHttpLayerCarryADecision) {
  GatewaySettings settings;
  settings.worker_urls = {"http://127.0.0.1:1"};
  settings.main_server.body_bytes_max = 4096;
  auto config = make_config(settings);
  ASSERT_TRUE(config.ok());
  config->main_server.port = config->metrics_server.port = 0;
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()}, *config);
  const Answer answer = gateway.ask(std::string(5000, ' '));
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.route("node"), "-");
  EXPECT_EQ(answer.route("epoch"), "0");
  EXPECT_TRUE(stub.seen.empty());
}

TEST(Proxy, MissingOrInvalidRequestIdIsReplaced) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  std::set<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.insert(gateway.ask(chat_body(kPersona, "x")).header("x-request-id"));
  EXPECT_EQ(ids.size(), 5u);
  const std::string long_id(300, 'x');
  EXPECT_TRUE(gateway.ask(chat_body(kPersona, "x"), "x-request-id: " + long_id + "\r\n")
                  .header("x-request-id")
                  .starts_with("req-"));
}

TEST(Proxy, DeadlineIsPassedOnAndKept) {
  Loop loop;
  StubWorker stub(loop, answer_never);
  TestGateway gateway(loop, {stub.endpoint()});
  const TimePoint start = now();
  const Answer answer = gateway.ask(chat_body(kPersona, "x"), "x-request-timeout-ms: 150\r\n");
  EXPECT_EQ(answer.status, 504);
  EXPECT_EQ(answer.route("node"), stub.id());
  EXPECT_GE(now() - start, 140ms);
  EXPECT_LT(now() - start, 1s);
  ASSERT_EQ(stub.seen.size(), 1u);
  EXPECT_LE(std::stoi(std::string(stub.seen[0].header("x-troupe-timeout-ms"))), 150);
  EXPECT_TRUE(loop.eventually([&] { return stub.running == 0; })) << "the worker still computes for nobody";
  EXPECT_EQ(gateway.worker_state(0), "ready") << "a client's short deadline made the worker a suspect";
}

TEST(Proxy, RequestsBeyondTheLimitAreRefused) {
  Loop loop;
  StubWorker stub(loop, answer_never);
  GatewayConfig config = TestGateway::quick_config();
  config.proxy.requests_max = 2;
  TestGateway gateway(loop, {stub.endpoint()}, config);
  RawPeer one = gateway.connect(), two = gateway.connect();
  one.send(http_post("/v1/chat/completions", chat_body(kPersona, "1")));
  two.send(http_post("/v1/chat/completions", chat_body(kPersona, "2")));
  EXPECT_TRUE(loop.eventually([&] { return stub.running == 2; }));
  const Answer answer = gateway.ask(chat_body(kPersona, "3"));
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.header("retry-after"), "1");
  EXPECT_NE(answer.body.find("this gateway has 2 requests at once, its limit"), std::string::npos);
  std::this_thread::sleep_for(2100ms);
  const int later = std::atoi(gateway.ask(chat_body(kPersona, "4")).header("retry-after").c_str());
  EXPECT_GE(later, 3) << "for more than two seconds nobody has gone";
  EXPECT_LE(later, 10);
}

constexpr int kTries = 3;  // a busy machine may delay one, not all

// Time from the client's disconnect to the worker's cancellation.
Duration time_to_cancel(Loop& loop, StubWorker& stub, RawPeer& peer) {
  EXPECT_TRUE(loop.eventually([&] { return stub.running == 1; }));
  std::this_thread::sleep_for(20ms);
  const TimePoint left = now();
  peer.close();
  EXPECT_TRUE(loop.eventually([&] { return stub.running == 0; }));
  return loop.call([&] { return stub.left_at; }) - left;
}

TEST(Proxy, DisconnectBeforeTheAnswerCancelsTheWorkerWithin50Ms) {
  Loop loop;
  StubWorker stub(loop, answer_never);
  TestGateway gateway(loop, {stub.endpoint()});
  Duration best = 10s;
  for (int i = 0; i < kTries; ++i) {
    RawPeer peer = gateway.connect();
    peer.send(http_post("/v1/chat/completions", chat_body(kPersona, "x")));
    best = std::min(best, time_to_cancel(loop, stub, peer));
  }
  EXPECT_LT(best, 50ms);
  EXPECT_EQ(gateway.metric("troupe_gateway_client_gone_total"), kTries);
  EXPECT_EQ(gateway.metric("troupe_gateway_requests_received_total"), kTries);
  EXPECT_EQ(gateway.metric("troupe_gateway_requests_cancelled_total{reason=\"client_gone\"}"), kTries);
  EXPECT_EQ(gateway.metric("troupe_gateway_requests_in_flight"), 0);
  EXPECT_EQ(loop.call([&] { return gateway.gateway->router().loads().in_flight_total(); }), 0);
  EXPECT_EQ(gateway.worker_state(0), "ready");
}

Task<void> answer_drip(StubWorker&, Exchange& exchange) {
  co_await begin_stream(exchange);
  Timer timer(exchange.executor());
  for (int i = 0; i < 5000; ++i) {
    co_await exchange.write("data: {}\n\n");
    timer.expires_after(5ms);
    co_await timer.async_wait(use_task);
  }
}

TEST(Proxy, DisconnectInMidStreamCancelsTheWorkerWithin50Ms) {
  Loop loop;
  StubWorker stub(loop, answer_drip);
  TestGateway gateway(loop, {stub.endpoint()});
  Duration best = 10s;
  for (int i = 0; i < kTries; ++i) {
    RawPeer peer = gateway.connect();
    peer.send(http_post("/v1/chat/completions", chat_body(kPersona, "x", true)));
    EXPECT_NE(peer.read_until("data: {}\n\n"), "");
    best = std::min(best, time_to_cancel(loop, stub, peer));
  }
  EXPECT_LT(best, 50ms);
  EXPECT_EQ(loop.call([&] { return gateway.gateway->router().loads().in_flight_total(); }), 0);
}

constexpr std::string_view kDone = "data: [DONE]\n\n";

Task<void> answer_flood(StubWorker& stub, Exchange& exchange) {
  co_await begin_stream(exchange);
  const std::string event = "data: " + std::string(8186, 'f') + "\n\n";
  for (int i = 0; i < 8192; ++i) {  // 64 MiB
    co_await exchange.write(event);
    stub.bytes_written += event.size();
  }
  co_await exchange.write(kDone);
  co_await exchange.finish();
}

TEST(Proxy, SlowReaderStopsTheWorkerNotTheGateway) {
  Loop loop;
  StubWorker stub(loop, answer_flood);
  TestGateway gateway(loop, {stub.endpoint()});
  RawPeer peer = gateway.connect(64 << 10);
  peer.send(http_post("/v1/chat/completions", chat_body(kPersona, "x", true)));
  size_t before = 0;
  for (int quiet = 0; quiet < 5;) {  // until the worker has paused for 250 ms
    std::this_thread::sleep_for(50ms);
    const size_t written = loop.call([&] { return stub.bytes_written; });
    quiet = written == before && written > 0 ? quiet + 1 : 0;
    before = written;
    ASSERT_LT(written, 32u << 20) << "nothing holds the worker back";
  }
  Duration best = 10s;
  for (int i = 0; i < kTries; ++i) {
    const TimePoint asked = now();
    EXPECT_EQ(gateway.get("/health").status, 200);
    best = std::min(best, now() - asked);
  }
  EXPECT_LT(best, 100ms) << "neighbours wait for the slow reader";
  const Answer answer = read_answer(peer);
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.body.size(), 8192u * 8194u + kDone.size());
}

}  // namespace
}  // namespace troupe::gateway_test
