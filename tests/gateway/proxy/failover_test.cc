// Failing workers: retries before the first byte, an honest end after it, drain.

#include <set>
#include <thread>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

const std::string kCard(1200, 'c');

TEST(Failover, RefusedConnectionGoesToTheNextCandidate) {
  Loop loop;
  StubWorker dying(loop, answer_whole), healthy(loop, answer_whole);
  GatewayConfig config = TestGateway::quick_config();
  config.prober.interval = 60s;  // requests detect the failure, not probes
  config.prober.suspicion_interval = 60s;
  TestGateway gateway(loop, {dying.endpoint(), healthy.endpoint()}, config);
  dying.stop();
  int retried = 0;
  for (int i = 0; i < 30; ++i) {
    const Answer answer = gateway.ask(chat_body(kCard + std::to_string(i), "x"));
    EXPECT_EQ(answer.status, 200) << i;
    EXPECT_EQ(answer.route("node"), healthy.id());
    retried += answer.route("attempt") == "2" ? 1 : 0;
  }
  EXPECT_GE(retried, 1);
  EXPECT_LE(retried, 1) << "a suspect is asked last: one failure is enough";
  EXPECT_EQ(gateway.worker_state(0), "suspect");
  EXPECT_EQ(gateway.metric("troupe_gateway_retries_total{failure=\"connect\"}"), retried);
}

// Strict mode with one home for each set: the other worker becomes it.
GatewayConfig strict_config() {
  GatewayConfig config = TestGateway::quick_config();
  config.prober.interval = 60s;  // only requests detect the failure
  config.prober.suspicion_interval = 60s;
  config.router.affinity.mode = route::Mode::kStrict;
  config.residency.enabled = false;
  config.router.planner.max_nodes_per_set = 1;
  return config;
}

TEST(Failover, StrictSetMovesWhenItsOnlyHomeFails) {
  for (const int status : {0, 500, 503}) {
    Loop loop;
    StubWorker ill(loop, answer_status(status)), healthy(loop, answer_whole);
    TestGateway gateway(loop, {ill.endpoint(), healthy.endpoint()}, strict_config());
    if (status == 0) ill.stop();
    for (int i = 0; i < 24; ++i) {
      const Answer answer = gateway.ask(chat_body(kCard + std::to_string(i), "x"));
      EXPECT_EQ(answer.status, 200) << status << ", " << i;
      EXPECT_EQ(answer.route("node"), healthy.id());
    }
    EXPECT_EQ(gateway.metric("troupe_gateway_retries_total{failure=\"" +
                             std::string(status == 0 ? "connect" : "status") + "\"}") > 0,
              true);
  }
}

// A full server answers 503 (a foreign one, too). Treated as a failure, its load would fall on the others.
TEST(Failover, Status503MeansLoadNotFailure) {
  for (const int status : {500, 503}) {
    Loop loop;
    StubWorker busy(loop, answer_status(status)), other(loop, answer_whole);
    GatewayConfig config = TestGateway::quick_config();
    config.prober.interval = 60s;  // only requests detect the failure
    config.prober.suspicion_interval = 60s;
    TestGateway gateway(loop, {busy.endpoint(), other.endpoint()}, config);
    int retried = 0;
    for (int i = 0; i < 30; ++i) {
      const Answer answer = gateway.ask(chat_body(kCard + std::to_string(i), "x"));
      EXPECT_EQ(answer.status, 200);
      retried += answer.route("attempt") != "1" ? 1 : 0;
    }
    EXPECT_GE(retried, 5) << "it was asked";
    if (status == 503) {
      EXPECT_EQ(gateway.worker_state(0), "ready");
    } else {
      EXPECT_NE(gateway.worker_state(0), "ready");
    }
  }
}

// It passes its probes, so only its answers reveal it; the next tick's plan must exclude it.
TEST(Failover, StrictNodeThatOnlyFailsGetsNoSets) {
  Loop loop;
  StubWorker ill(loop, answer_status(500)), a(loop, answer_whole), b(loop, answer_whole);
  GatewayConfig config = TestGateway::quick_config();
  config.prober.interval = 10ms;
  config.router.affinity.mode = route::Mode::kStrict;
  config.residency.enabled = false;
  config.router.planner.tick = 20ms;
  config.router.planner.strict_sets = 6;
  config.router.planner.max_sets_per_node = 6;
  TestGateway gateway(loop, {ill.endpoint(), a.endpoint(), b.endpoint()}, config);
  const auto ill_sets = [&] {
    size_t count = 0;
    for (const auto& [set, homes] : gateway.gateway->router().table()->sets())
      count += homes.contains(0) ? 1 : 0;
    return count;
  };
  ASSERT_TRUE(loop.eventually([&] { return ill_sets() > 0; }));
  const auto ask = [&](int i) {
    EXPECT_EQ(gateway.ask(chat_body(kCard + std::to_string(i), "x")).status, 200) << i;
  };
  // While none holds a set, the home that is asked first is drawn: as many as it takes.
  for (int i = 0; i < 1000 && gateway.worker_state(0) != "suspect"; ++i) ask(i);
  EXPECT_EQ(gateway.worker_state(0), "suspect");
  EXPECT_TRUE(loop.eventually([&] { return ill_sets() == 0; }));
  const size_t asked = loop.call([&] { return ill.seen.size(); });
  const int probed = loop.call([&] { return ill.probes; });
  ASSERT_TRUE(loop.eventually([&] { return ill.probes > probed + 20; }));  // and as many plans
  for (int i = 0; i < 24; ++i) ask(i);
  EXPECT_EQ(loop.call([&] { return ill.seen.size(); }), asked);
  EXPECT_EQ(loop.call(ill_sets), 0u);
}

TEST(Failover, RecoveredNodeIsTriedAgain) {
  Loop loop;
  StubWorker ill(loop, answer_status(500)), healthy(loop, answer_whole);
  GatewayConfig config = TestGateway::quick_config();
  config.prober.interval = 10ms;
  config.fleet.health.errors_for = 200ms;
  TestGateway gateway(loop, {ill.endpoint(), healthy.endpoint()}, config);
  for (int i = 0; i < 24; ++i) gateway.ask(chat_body(kCard + std::to_string(i), "x"));
  loop.call([&] { ill.answer = answer_whole; });
  EXPECT_TRUE(gateway.becomes(0, "ready"));
}

TEST(Failover, FullStrictHomeKeepsItsSets) {
  Loop loop;
  StubWorker a(loop, answer_status(429)), b(loop, answer_status(429));
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()}, strict_config());
  const Answer answer = gateway.ask(chat_body(kCard, "x"));
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(a.seen.size() + b.seen.size(), 1u);
}

TEST(Failover, ErrorStatusGoesToTheNextCandidate) {
  for (const int status : {500, 502, 503, 507, 524, 429}) {
    Loop loop;
    StubWorker ill(loop, answer_status(status)), healthy(loop, answer_whole);
    TestGateway gateway(loop, {ill.endpoint(), healthy.endpoint()});
    for (int i = 0; i < 10; ++i) {
      const Answer answer = gateway.ask(chat_body(kCard + std::to_string(i), "x"));
      EXPECT_EQ(answer.status, 200) << status;
      EXPECT_EQ(answer.route("node"), healthy.id());
    }
    EXPECT_FALSE(ill.seen.empty());
  }
}

TEST(Failover, TokenizingGoesToTheNextCandidateLikeAnyRequest) {
  Loop loop;
  StubWorker ill(loop, answer_status(503)), healthy(loop, answer_tokens);
  TestGateway gateway(loop, {ill.endpoint(), healthy.endpoint()});
  const std::pair<std::string, std::string> requests[] = {
      {"/tokenize", R"({ "prompt":"a" })"}, {"/detokenize", R"({"model":"demo", "tokens":[1]})"}};
  for (const auto& [path, body] : requests) {
    std::set<std::string> attempts;
    for (int i = 0; i < 12; ++i) {
      RawPeer peer = gateway.connect();
      peer.send(http_post(path, body));
      const Answer answer = read_answer(peer);
      EXPECT_EQ(answer.status, 200);
      EXPECT_EQ(answer.route("node"), healthy.id());
      EXPECT_EQ(answer.route("set"), "-");
      const std::string own = path == "/tokenize" ? R"({"prompt":"a")" : body;  // other forms come after it
      EXPECT_EQ(healthy.seen.back().body.substr(0, own.size()), own) << "the client's own bytes";
      EXPECT_EQ(healthy.seen.back().path, path);
      EXPECT_EQ(healthy.seen.back().header("x-troupe-set"), "");
      attempts.insert(answer.route("attempt"));
    }
    EXPECT_EQ(attempts, (std::set<std::string>{"1", "2"}));
  }
  EXPECT_FALSE(ill.seen.empty());
}

// Number of times two workers were asked for one request that both fail with 503, and the answer to it.
std::pair<size_t, Answer> asked_of_two(bool resend_to_foreign, const std::string& header, bool ours = false) {
  Loop loop;
  StubWorker a(loop, answer_status(503)), b(loop, answer_status(503));
  a.load_status = b.load_status = ours ? 200 : 404;
  a.load.epoch = b.load.epoch = "life";
  GatewayConfig config = TestGateway::quick_config();
  config.proxy.resend_to_foreign = resend_to_foreign;
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()}, config);
  const Fleet& fleet = gateway.gateway->fleet();
  EXPECT_TRUE(loop.eventually(
      [&] { return fleet.is_troupe_worker(0) == ours && fleet.is_troupe_worker(1) == ours; }));
  const Answer answer = gateway.ask(chat_body(kCard, "x"), header);
  return {a.seen.size() + b.seen.size(), answer};
}

TEST(Failover, ResendAfterAForeignFailureFollowsConfigurationAndHeader) {
  EXPECT_EQ(asked_of_two(true, "").first, 2u);
  const auto [asked, answer] = asked_of_two(false, "");
  EXPECT_EQ(asked, 1u);
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(asked_of_two(false, "x-troupe-retry: always\r\n").first, 2u);
  EXPECT_EQ(asked_of_two(true, "x-troupe-retry: connect\r\n").first, 1u);
  EXPECT_EQ(asked_of_two(false, "", true).first, 2u) << "ours compute, and that is all";
  EXPECT_EQ(asked_of_two(true, "x-troupe-retry: connect\r\n", true).first, 1u) << "as its client wants it";
  const auto [nobody, wrong] = asked_of_two(true, "x-troupe-retry: perhaps\r\n");
  EXPECT_EQ(nobody, 0u);
  EXPECT_EQ(wrong.status, 400);
  EXPECT_NE(wrong.body.find("x-troupe-retry must be 'always' or 'connect'"), std::string::npos) << wrong.body;
}

TEST(Failover, RequestThatNoWorkerBeganIsAlwaysRetried) {
  for (const bool dies : {false, true}) {
    Loop loop;
    StubWorker failing(loop, answer_status(429)), healthy(loop, answer_whole);
    GatewayConfig config = TestGateway::quick_config();
    config.proxy.resend_to_foreign = false;
    // requests detect the failure, not probes
    config.prober.interval = config.prober.suspicion_interval = 60s;
    TestGateway gateway(loop, {failing.endpoint(), healthy.endpoint()}, config);
    if (dies) failing.stop();
    for (int i = 0; i < 30; ++i) {
      const Answer answer =
          gateway.ask(chat_body(kCard + std::to_string(i), "x"), "x-troupe-retry: connect\r\n");
      EXPECT_EQ(answer.status, 200) << i;
      EXPECT_EQ(healthy.seen.back().header("x-troupe-retry"), "") << "no worker's business";
    }
    const std::string kind = dies ? "connect" : "status";
    EXPECT_GT(gateway.metric("troupe_gateway_retries_total{failure=\"" + kind + "\"}"), 0) << kind;
  }
}

TEST(Failover, RetriesRefusedByTheBudgetAreCounted) {
  Loop loop;
  StubWorker a(loop, answer_status(503)), b(loop, answer_status(503));
  GatewayConfig config = TestGateway::quick_config();
  config.proxy.retry.budget_max = 3;
  config.proxy.retry.budget_per_s = config.proxy.retry.budget_ratio = 0;
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()}, config);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(gateway.ask(chat_body(kCard, "x")).status, 503);
  EXPECT_EQ(a.seen.size() + b.seen.size(), 5u + 3u);
  EXPECT_EQ(gateway.metric("troupe_gateway_retries_refused_total"), 2);
}

TEST(Failover, LastErrorIsPassedOnWhenAllCandidatesFail) {
  for (const int status : {500, 503, 429}) {
    Loop loop;
    StubWorker a(loop, answer_status(status)), b(loop, answer_status(status));
    TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
    const Answer answer = gateway.ask(chat_body(kCard, "x"));
    EXPECT_EQ(answer.status, status);
    EXPECT_NE(answer.body.find("stub says"), std::string::npos);
    EXPECT_EQ(answer.header("retry-after"), status == 429 ? "7" : "");
    EXPECT_EQ(answer.route("attempt"), "2");
    EXPECT_EQ(a.seen.size() + b.seen.size(), 2u);
  }
}

TEST(Failover, TimeoutOfAWorkerOfOursIsPassedOnNotRetried) {
  Loop loop;
  StubWorker a(loop, answer_status(504)), b(loop, answer_status(504));
  a.load_status = b.load_status = 200;
  a.load.epoch = b.load.epoch = "life";
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
  const Fleet& fleet = gateway.gateway->fleet();
  EXPECT_TRUE(loop.eventually([&] { return fleet.is_troupe_worker(0) && fleet.is_troupe_worker(1); }));
  const Answer answer = gateway.ask(chat_body(kCard, "x"));
  EXPECT_EQ(answer.status, 504);
  EXPECT_NE(answer.body.find("stub says 504"), std::string::npos);
  EXPECT_EQ(a.seen.size() + b.seen.size(), 1u);
  EXPECT_EQ(gateway.worker_state(0) + gateway.worker_state(1), "readyready");
}

TEST(Failover, ClientErrorsAreNotRetried) {
  Loop loop;
  StubWorker a(loop, answer_status(400)), b(loop, answer_status(400));
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
  EXPECT_EQ(gateway.ask(chat_body(kCard, "x")).status, 400);
  EXPECT_EQ(a.seen.size() + b.seen.size(), 1u);
  EXPECT_TRUE(loop.call([&] { return gateway.gateway->router().known().shadow.empty(); }))
      << "nobody computed what was refused";
}

Task<void> break_off_whole(StubWorker&, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.start(200, headers);
  co_await exchange.write("{\"choices\":[");
}

TEST(Failover, BrokenWholeAnswerIsRetried) {
  Loop loop;
  StubWorker broken(loop, break_off_whole), healthy(loop, answer_whole);
  TestGateway gateway(loop, {broken.endpoint(), healthy.endpoint()});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(gateway.ask(chat_body(kCard + std::to_string(i), "x")).status, 200);
  EXPECT_FALSE(broken.seen.empty());
}

TEST(Failover, WholeAnswerThatAlwaysBreaksIsBadGateway) {
  Loop loop;
  StubWorker a(loop, break_off_whole), b(loop, break_off_whole);
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
  const Answer answer = gateway.ask(chat_body(kCard, "x"));
  EXPECT_EQ(answer.status, 502);
  EXPECT_NE(answer.body.find("bad_gateway"), std::string::npos);
}

Task<void> break_off_before_first_event(StubWorker&, Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {\"half");
}

TEST(Failover, StreamBrokenBeforeItsFirstEventIsRetried) {
  Loop loop;
  StubWorker broken(loop, break_off_before_first_event), healthy(loop, answer_stream);
  TestGateway gateway(loop, {broken.endpoint(), healthy.endpoint()});
  for (int i = 0; i < 10; ++i) {
    const Answer answer = gateway.ask(chat_body(kCard + std::to_string(i), "x", true));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.find("half"), std::string::npos);
    EXPECT_TRUE(answer.body.ends_with("[DONE]\n\n"));
  }
  EXPECT_FALSE(broken.seen.empty());
}

Task<void> break_off_mid_stream(StubWorker&, Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {\"n\":0}\n\ndata: {\"n\":1}\n\ndata: {\"ha");
}

TEST(Failover, BrokenStreamEndsWithAnErrorEventWithoutDone) {
  Loop loop;
  StubWorker broken(loop, break_off_mid_stream), other(loop, break_off_mid_stream);
  TestGateway gateway(loop, {broken.endpoint(), other.endpoint()});
  RawPeer peer = gateway.connect();
  peer.send(http_post("/v1/chat/completions", chat_body(kCard, "x", true)));
  const Answer answer = read_answer(peer);
  EXPECT_EQ(answer.status, 200);
  const std::string events = "data: {\"n\":0}\n\ndata: {\"n\":1}\n\ndata: ";
  ASSERT_TRUE(answer.body.starts_with(events)) << answer.body;
  const std::string last = answer.body.substr(events.size());
  const auto error = parse_json(std::string_view(last).substr(0, last.find("\n\n")));
  ASSERT_TRUE(error.ok()) << last;
  EXPECT_TRUE(error->as_object().contains("error")) << last;
  EXPECT_EQ(answer.body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(peer.closed_within(1s));
  EXPECT_EQ(broken.seen.size() + other.seen.size(), 1u) << "a started answer was asked for again";
  EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 1);
}

// Accepts, reads a request's head, closes: a process that dies at every POST; answers probes.
class Resetter {
 public:
  Resetter() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    socklen_t length = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    endpoint_.host = "127.0.0.1";
    endpoint_.port = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Resetter() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  Endpoint endpoint() const { return endpoint_; }
  int posts() const { return posts_; }

 private:
  void serve() {
    for (int fd = ::accept(fd_, nullptr, nullptr); fd >= 0; fd = ::accept(fd_, nullptr, nullptr)) {
      RawPeer peer(fd);
      const std::string head = peer.read_until("\r\n\r\n");
      if (head.starts_with("POST")) {
        posts_ += 1;
        peer.reset();
        continue;
      }
      ModelCard card;
      card.id = "demo";
      const std::string body = models_json({card});
      peer.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    }
  }

  int fd_;
  Endpoint endpoint_;
  std::atomic<int> posts_{0};
  std::thread thread_;
};

TEST(Failover, ConnectionResetBeforeTheAnswerGoesToTheNextCandidate) {
  Loop loop;
  Resetter resetter;
  StubWorker healthy(loop, answer_whole);
  TestGateway gateway(loop, {resetter.endpoint(), healthy.endpoint()});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(gateway.ask(chat_body(kCard + std::to_string(i), "x")).status, 200);
  EXPECT_GE(resetter.posts(), 1);
}

Task<void> answer_after_5_ms(StubWorker& stub, Exchange& exchange) {
  Timer timer(exchange.executor());
  timer.expires_after(5ms);
  co_await timer.async_wait(use_task);
  co_await answer_whole(stub, exchange);
}

TEST(Failover, WorkerDeathUnderLoadLosesNoRequest) {
  Loop loop;
  StubWorker a(loop, answer_after_5_ms), b(loop, answer_after_5_ms), c(loop, answer_after_5_ms);
  TestGateway gateway(loop, {a.endpoint(), b.endpoint(), c.endpoint()});
  std::atomic<int> answered{0}, failed{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      RawPeer peer = gateway.connect();
      for (int i = 0; i < 60; ++i) {
        peer.send(http_post("/v1/chat/completions",
                            chat_body(kCard + std::to_string(i % 12), std::to_string(client * 100 + i))));
        (read_answer(peer).status == 200 ? answered : failed) += 1;
      }
    });
  }
  while (answered < 100) std::this_thread::sleep_for(1ms);
  b.stop();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(answered, 360);
  EXPECT_FALSE(b.seen.empty());
  EXPECT_EQ(loop.call([&] { return gateway.gateway->router().loads().in_flight_total(); }), 0);
  EXPECT_EQ(loop.call([&] { return gateway.gateway->router().loads().pending_tokens_total(); }), 0);
}

TEST(Failover, NoReadyWorkerIs503AndShowsInHealth) {
  Loop loop;
  TestGateway gateway(loop, {dead_endpoint(loop), dead_endpoint(loop)});
  const Answer answer = gateway.ask(chat_body(kCard, "x"));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.route("node"), "-");
  EXPECT_EQ(gateway.get("/health").status, 503);
  EXPECT_EQ(gateway.admin("/readyz").status, 503);
  EXPECT_EQ(gateway.admin("/livez").status, 200);
  EXPECT_EQ(gateway.get("/v1/models").body, models_json({}));
}

Task<void> answer_when_told(StubWorker& stub, Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {}\n\n");
  Timer timer(exchange.executor());
  while (stub.bytes_written == 0) {
    timer.expires_after(5ms);
    co_await timer.async_wait(use_task);
  }
  co_await exchange.write("data: [DONE]\n\n");
  co_await exchange.finish();
}

TEST(Drain, FinishesRunningRequestsAndRefusesNewOnes) {
  Loop loop;
  StubWorker stub(loop, answer_when_told);
  GatewayConfig config = TestGateway::quick_config();
  config.grace = 10s;
  TestGateway gateway(loop, {stub.endpoint()}, config);
  RawPeer running = gateway.connect(), waiting = gateway.connect();
  running.send(http_post("/v1/chat/completions", chat_body(kCard, "x", true)));
  ASSERT_NE(running.read_until("data: {}\n\n\r\n"), "");
  const std::string second = http_post("/v1/chat/completions", chat_body(kCard, "y", true));
  waiting.send(second.substr(0, 30));  // a request half sent when the drain begins
  std::this_thread::sleep_for(300ms);  // until it has arrived
  std::thread drain([&] { gateway.drain(); });
  EXPECT_TRUE(loop.eventually([&] { return gateway.gateway->proxy().draining(); }));
  EXPECT_EQ(gateway.admin("/readyz").status, 503);
  waiting.send(second.substr(30));
  const Answer refused = read_answer(waiting);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("connection"), "close");
  loop.call([&] { stub.bytes_written = 1; });
  EXPECT_NE(running.read_until("[DONE]\n\n").find("[DONE]"), std::string::npos);
  drain.join();
  EXPECT_EQ(loop.call([&] { return gateway.gateway->proxy().requests_running(); }), 0u);
}

TEST(Drain, EndsRemainingRequestsAfterTheGrace) {
  Loop loop;
  StubWorker stub(loop, answer_when_told);
  TestGateway gateway(loop, {stub.endpoint()});
  RawPeer running = gateway.connect();
  running.send(http_post("/v1/chat/completions", chat_body(kCard, "x", true)));
  ASSERT_NE(running.read_until("data: {}\n\n"), "");
  const TimePoint start = now();
  gateway.drain();
  EXPECT_LT(now() - start, 2s);
  EXPECT_TRUE(loop.eventually([&] { return stub.running == 0; }));
}

}  // namespace
}  // namespace troupe::gateway_test
