// The client's view of answers held while another worker was asked, and of streams that a worker itself ends
// with an error.

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

const std::string kPersonaCard(1300, 'h');

Task<void> refuse_with_body(int status, size_t body_bytes, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "text/plain");
  headers.emplace_back("retry-after", "9");
  std::string body(body_bytes, 'b');
  co_await exchange.respond(status, headers, std::move(body));
}

StubAnswer refuse_with(int status, size_t body_bytes) {
  return [=](StubWorker&, Exchange& exchange) { return refuse_with_body(status, body_bytes, exchange); };
}

TEST(Held, RefusalWithoutUsableBodyKeepsStatusAndRetryAfter) {
  for (const int status : {429, 503}) {
    for (const size_t bytes : {size_t{0}, size_t{200'000}}) {
      Loop loop;
      StubWorker stub(loop, refuse_with(status, bytes));
      TestGateway gateway(loop, {stub.endpoint()});
      const Answer answer = gateway.ask(chat_body(kPersonaCard, "x"));
      EXPECT_EQ(answer.status, status) << bytes;
      EXPECT_EQ(answer.header("retry-after"), "9") << status << ' ' << bytes;
      EXPECT_EQ(answer.header("content-type"), "application/json");
      const auto error = parse_json(answer.body);
      ASSERT_TRUE(error.ok()) << answer.body.substr(0, 200);
      EXPECT_TRUE(error->as_object().contains("error"));
      EXPECT_EQ(gateway.worker_state(0), "ready");
    }
  }
}

Task<void> refuse_without_end(StubWorker&, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.start(503, headers);
  co_await exchange.write("{");
  Timer timer(exchange.executor());
  timer.expires_after(20s);
  co_await timer.async_wait(use_task);
}

TEST(Held, DeadlineDuringTheBodyOfARefusalIs504) {
  Loop loop;
  StubWorker stub(loop, refuse_without_end);
  TestGateway gateway(loop, {stub.endpoint()});
  const Answer answer = gateway.ask(chat_body(kPersonaCard, "x"), "x-request-timeout-ms: 150\r\n");
  EXPECT_EQ(answer.status, 504);
}

TEST(Held, FullFleetAnswers429ThoughOneWorkerIsGone) {
  Loop loop;
  StubWorker full(loop, answer_status(429)), gone(loop, answer_status(429));
  GatewayConfig config = TestGateway::quick_config();
  config.prober.interval = config.prober.suspicion_interval = 60s;
  config.fleet.health.dead_after = 100;
  TestGateway gateway(loop, {full.endpoint(), gone.endpoint()}, config);
  gone.stop();
  // Alternately: the dead worker is asked first until it is a suspect, then last.
  for (int i = 0; i < 10; ++i) {
    const Answer answer = gateway.ask(chat_body(kPersonaCard + std::to_string(i), "x"));
    EXPECT_EQ(answer.status, 429) << i;
    EXPECT_EQ(answer.header("retry-after"), "7");
    EXPECT_EQ(answer.route("node"), full.id()) << "not the node whose answer it is";
  }
}

// A full worker that says so once another worker can be routed to.
Task<void> refuse_as_another_joins(Gateway& gateway, Exchange& exchange) {
  ModelCard card;
  card.id = "demo";
  gateway.fleet().set_models(1, {card});
  gateway.fleet().on_event(1, route::HealthEvent::kProbeOk);
  co_await respond_status(429, exchange);
}

// At the order's end a new decision is made, which has another first choice.
TEST(Held, HeldAnswerNamesItsWorkerAfterANewDecision) {
  Loop loop;
  StubWorker full(loop, answer_status(429));
  GatewayConfig config = TestGateway::quick_config();
  config.prober.interval = config.prober.suspicion_interval = 60s;
  config.fleet.health.dead_after = 1;
  TestGateway gateway(loop, {full.endpoint(), dead_endpoint(loop)}, config);
  loop.call([&] {
    full.answer = [&](StubWorker&, Exchange& exchange) {
      return refuse_as_another_joins(*gateway.gateway, exchange);
    };
  });
  const Answer answer = gateway.ask(chat_body(kPersonaCard, "x"));
  EXPECT_EQ(answer.status, 429) << answer.body;
  EXPECT_EQ(answer.route("attempt"), "2");
  EXPECT_EQ(answer.route("node"), full.id()) << "not the node whose answer it is";
}

Task<void> stream_with_error(StubWorker&, Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write("data: {\"n\":\"data: {\\\"error\\\"\"}\n\n");
  co_await exchange.write("data: {\"n\":1}\n\ndata: {\"error\":{\"message\":\"out of blocks\"}}\n\n");
  co_await exchange.write("data: [DONE]\n\n");
  co_await exchange.finish();
}

TEST(ErrorEvent, EndsTheStreamAndCountsAsBroken) {
  Loop loop;
  StubWorker stub(loop, stream_with_error);
  TestGateway gateway(loop, {stub.endpoint()});
  RawPeer peer = gateway.connect();
  for (int i = 1; i <= 4; ++i) {  // on one connection: the answer ends properly
    peer.send(http_post("/v1/chat/completions", chat_body(kPersonaCard, "x", true)));
    const Answer answer = read_answer(peer);
    EXPECT_TRUE(answer.complete);
    EXPECT_TRUE(
        answer.body.ends_with("data: {\"n\":1}\n\ndata: {\"error\":{\"message\":\"out of blocks\"}}\n\n"))
        << answer.body;
    EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), i);
  }
  EXPECT_EQ(gateway.worker_state(0), "ready") << "a worker that says what went wrong is not a dead one";
}

// While it lives, this process gets no more file descriptors.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(next);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

// Two stub workers in a process of their own, which keeps its descriptors when ours has none left (a worker
// that cannot accept is rightly blamed). REQUIRES: created before this process has a second thread.
class StubProcess {
 public:
  StubProcess() {
    int to_us[2], to_child[2];
    EXPECT_EQ(::pipe(to_us) + ::pipe(to_child), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::close(to_child[1]);
      serve(to_us[1], to_child[0]);
    }
    ::close(to_us[1]);
    ::close(to_child[0]);
    life_ = to_child[1];
    for (Upstream& upstream : upstreams) {
      Endpoint& endpoint = upstream.endpoint;
      endpoint.host = "127.0.0.1";
      EXPECT_EQ(::read(to_us[0], &endpoint.port, sizeof endpoint.port), ssize_t{sizeof endpoint.port});
    }
    ::close(to_us[0]);
  }
  ~StubProcess() {
    ::close(life_);
    int status = 0;
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0);
  }
  StubProcess(const StubProcess&) = delete;
  StubProcess& operator=(const StubProcess&) = delete;

  std::vector<Upstream> upstreams{2};

 private:
  // Runs until the parent closes `life`.
  [[noreturn]] static void serve(int report, int life) {
    Loop loop;
    StubWorker a(loop, answer_whole), b(loop, answer_whole);
    loop.call([] {});  // orders the stubs before requests of another process, which TSan does not see
    for (const uint16_t port : {a.endpoint().port, b.endpoint().port}) {
      if (::write(report, &port, sizeof port) != sizeof port) ::_exit(1);
    }
    char byte = 0;
    while (::read(life, &byte, 1) < 0 && errno == EINTR) {
    }
    ::_exit(0);
  }

  pid_t child_ = -1;
  int life_ = -1;
};

TEST(Local, GatewayOutOfDescriptorsBlamesNoWorker) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan checks types through a pipe: without descriptors every type looks wrong";
#endif
  const StubProcess stubs;
  Loop loop;
  GatewayConfig config = TestGateway::quick_config();
  config.fleet.client.idle_connections_max = 0;  // every request and every probe connects
  config.fleet.health.dead_after = 1;
  config.prober.timeout = 10s;  // a slow machine is not a dead worker
  TestGateway gateway(loop, stubs.upstreams, config);
  RawPeer peer = gateway.connect();
  peer.send(http_post("/v1/chat/completions", chat_body(kPersonaCard, "x")));
  EXPECT_EQ(read_answer(peer).status, 200);
  std::vector<Answer> refused;  // checked once there are descriptors again
  {
    // Probes' connections come and go: some may still get the descriptor that another gives back.
    const NoMoreFiles none;
    for (int i = 0; i < 200 && refused.size() < 3; ++i) {
      peer.send(http_post("/v1/chat/completions", chat_body(kPersonaCard, "x")));
      Answer answer = read_answer(peer);
      if (answer.status != 200) refused.push_back(std::move(answer));
    }
    std::this_thread::sleep_for(120ms);  // two probes that cannot be sent
  }
  EXPECT_EQ(refused.size(), 3U);
  for (const Answer& answer : refused) {
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.header("retry-after"), "1");
    EXPECT_NE(answer.body.find("overloaded"), std::string::npos) << answer.body;
    EXPECT_EQ(answer.route("attempt"), "1") << "another worker was asked for what the gateway lacks";
  }
  EXPECT_EQ(gateway.worker_state(0) + gateway.worker_state(1), "readyready");
}

Task<void> flood(StubWorker& stub, Exchange& exchange) {
  co_await begin_stream(exchange);
  const std::string event = "data: " + std::string(65'536, 'f') + "\n\n";
  for (int i = 0; i < 10'000; ++i) {
    co_await exchange.write(event);
    stub.bytes_written += event.size();
  }
}

TEST(Stall, WorkerThatBreaksOffBehindASlowClientIsNotBlamed) {
  for (const bool slow : {true, false}) {
    Loop loop;
    StubWorker stub(loop, flood);
    GatewayConfig config = TestGateway::quick_config();
    config.prober.interval = config.prober.suspicion_interval = 60s;  // requests alone change its health
    config.proxy.client_stall = slow ? Duration(50ms) : Duration(60s);
    TestGateway gateway(loop, {stub.endpoint()}, config);
    RawPeer peer = gateway.connect(64 << 10);
    peer.send(http_post("/v1/chat/completions", chat_body(kPersonaCard, "x", true)));
    ASSERT_TRUE(loop.eventually([&] { return stub.bytes_written > 0; }));
    // The client reads nothing: wait until all buffers between it and the worker are full.
    const auto written = [&] { return loop.call([&] { return stub.bytes_written; }); };
    // A busy machine may stall for a moment, too.
    size_t before = 0;
    for (int i = 0, still = 0; i < 100 && still < 4; ++i) {
      const size_t after = written();
      still = after == before ? still + 1 : 0;
      before = after;
      std::this_thread::sleep_for(250ms);
    }
    stub.stop();
    read_answer(peer);
    EXPECT_TRUE(loop.eventually([&] { return gateway.gateway->proxy().requests_running() == 0; }));
    EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 1);
    EXPECT_EQ(gateway.worker_state(0), slow ? "ready" : "suspect");
  }
}

}  // namespace
}  // namespace troupe::gateway_test
