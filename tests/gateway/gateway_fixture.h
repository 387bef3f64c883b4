#pragma once

// A gateway with stub workers, all in one process: the test scripts the workers' answers, and a blocking
// client sees the raw bytes.

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/api/conversations.h"
#include "common/json/json.h"
#include "gateway/gateway.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::gateway_test {

using net_test::Loop;
using net_test::now;
using net_test::RawPeer;
using net_test::TestServer;
using namespace std::chrono_literals;

class StubWorker;
using StubAnswer = std::function<Task<void>(StubWorker&, Exchange&)>;

Task<void> answer_whole(StubWorker& stub, Exchange& exchange);   // a chat answer with usage
Task<void> answer_stream(StubWorker& stub, Exchange& exchange);  // three events, usage, [DONE]
StubAnswer answer_status(int status);                            // an error with that status

// Serves /readyz, /v1/models and /v1/load, optionally /v1/residency, and answers POSTs as scripted. The test
// reads its members through Loop::call, or once the loop is quiet.
class StubWorker {
 public:
  StubWorker(Loop& loop, StubAnswer script, const HttpServerOptions& options = {})
      : answer(std::move(script)),
        server_(std::make_unique<TestServer>(
            loop, [this](Exchange& e) { return handle(*this, e); }, options)) {}
  Endpoint endpoint() const { return endpoint_; }
  std::string id() const { return endpoint().authority(); }
  void stop() { server_.reset(); }

  StubAnswer answer;
  std::vector<std::string> models{"demo"};
  std::string owned_by = "troupe";  // as its models say
  int64_t context = 0;              // of each of them, as it tells; 0: it does not
  int ready_status = 200;
  std::string ready_body = "{}";
  Duration ready_after{};  // delay of a probe's answer
  int load_status = 404;
  LoadReport load;
  // GET /v1/residency: every stream receives all of `told`, from its beginning on, until `hang_ups` grows.
  bool tells_residency = false;
  std::string told;
  int hang_ups = 0;
  int residency_asked = 0;
  std::string metrics;       // GET /metrics; empty: 404
  int metrics_status = 200;  // of those
  int metrics_asked = 0;
  // Before every path; and the Authorization without which all but /health is answered 401, and its header.
  std::string prefix, wants_authorization, key_header = "authorization";
  HttpRequest models_asked;  // the last GET /v1/models
  int running = 0;
  int probes = 0;
  std::vector<HttpRequest> seen;  // POSTs
  size_t bytes_written = 0;
  TimePoint left_at{};  // end of the last scripted handler, for any reason

 private:
  static Task<void> handle(StubWorker& stub, Exchange& exchange);
  std::unique_ptr<TestServer> server_;
  const Endpoint endpoint_ = server_->endpoint();  // handlers use it while the server is being stopped
};

// Marks in the stub that a scripted handler ended, cancelled or not.
struct Presence {
  explicit Presence(StubWorker& s) : stub(s) { stub.running += 1; }
  ~Presence() {
    stub.running -= 1;
    stub.left_at = now();
  }
  StubWorker& stub;
};

inline Task<void> begin_stream(Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "text/event-stream");
  co_await exchange.start(200, headers);
}

inline Task<void> tell_residency(StubWorker& stub, Exchange& exchange) {
  co_await begin_stream(exchange);
  Timer timer(exchange.executor());
  size_t sent = 0;
  for (const int hang_ups = stub.hang_ups; hang_ups == stub.hang_ups;) {
    const std::string news = stub.told.substr(sent);
    sent += news.size();
    if (!news.empty()) co_await exchange.write(news);
    timer.expires_after(1ms);
    co_await timer.async_wait(use_task);
  }
  co_await exchange.finish();
}

inline Task<void> StubWorker::handle(StubWorker& stub, Exchange& exchange) {
  std::string path = exchange.request().path;
  const bool prefixed = path.starts_with(stub.prefix);
  path.erase(0, prefixed ? stub.prefix.size() : 0);
  const bool has_key = stub.wants_authorization.empty() ||
                       exchange.request().header(stub.key_header) == stub.wants_authorization;
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  std::string body = "{}";
  int status = 404;
  if (!prefixed || (!has_key && path != "/health")) {
    if (prefixed) status = 401;
  } else if (path == "/readyz") {
    stub.probes += 1;
    if (stub.ready_after > Duration::zero()) {
      Timer timer(exchange.executor());
      timer.expires_after(stub.ready_after);
      co_await timer.async_wait(use_task);
    }
    status = stub.ready_status;
    body = stub.ready_body;
  } else if (path == "/v1/models") {
    stub.models_asked = exchange.request();
    std::vector<ModelCard> cards;
    for (const std::string& model : stub.models) {
      ModelCard card;
      card.id = model;
      card.owned_by = stub.owned_by;
      card.max_model_len = stub.context;
      cards.push_back(card);
    }
    status = 200;
    body = models_json(cards);
  } else if (path == "/v1/load") {
    status = stub.load_status;
    body = load_report_json(stub.load);
  } else if (path == "/metrics") {
    stub.metrics_asked += 1;
    status = stub.metrics.empty() ? 404 : stub.metrics_status;
    body = stub.metrics;
  } else if (path == "/v1/residency") {
    stub.residency_asked += 1;
    if (stub.tells_residency) {
      co_await tell_residency(stub, exchange);
      co_return;
    }
  } else if (exchange.request().method == "POST" || path.starts_with(kConversationsPath)) {
    stub.seen.push_back(exchange.request());
    const Presence presence(stub);
    co_await stub.answer(stub, exchange);
    co_return;
  }
  co_await exchange.respond(status, headers, std::move(body));
}

inline Task<void> answer_whole(StubWorker& stub, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  headers.emplace_back("x-worker", stub.id());
  headers.emplace_back("x-troupe-internal", "not for clients");
  std::string body =
      R"({"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",)"
      R"("content":"I am Song Jiang, \"usage\": no."},"finish_reason":"stop"}],"usage":{"prompt_tokens":400,)"
      R"("completion_tokens":9,"total_tokens":409,"prompt_tokens_details":{"cached_tokens":320}}})";
  co_await exchange.respond(200, headers, std::move(body));
}

inline Task<void> answer_stream(StubWorker& stub, Exchange& exchange) {
  co_await begin_stream(exchange);
  for (int i = 0; i < 3; ++i) {
    const std::string event = "data: {\"n\":" + std::to_string(i) + "}\n\n";
    stub.bytes_written += event.size();
    co_await exchange.write(event);
  }
  co_await exchange.write(
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":400,\"completion_tokens\":3,"
      "\"prompt_tokens_details\":{\"cached_tokens\":384}}}\n\n");
  co_await exchange.write("data: [DONE]\n\n");
  co_await exchange.finish();
}

inline Task<void> respond_status(int status, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  if (status == 429) headers.emplace_back("retry-after", "7");
  std::string body = R"({"error":{"message":"stub says )" + std::to_string(status) + R"(","type":"x"}})";
  co_await exchange.respond(status, headers, std::move(body));
}

inline StubAnswer answer_status(int status) {
  return [status](StubWorker&, Exchange& exchange) { return respond_status(status, exchange); };
}

// Answers both /tokenize and /detokenize, in vLLM's form.
inline Task<void> answer_tokens(StubWorker&, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.respond(200, headers, R"({"count":1,"max_model_len":9,"tokens":[7],"prompt":"a"})");
}

inline Task<void> answer_never(StubWorker&, Exchange& exchange) {
  Timer timer(exchange.executor());
  timer.expires_after(20s);
  co_await timer.async_wait(use_task);
}

// An answer as the client received it.
struct Answer {
  int status = 0;
  std::string head;
  std::string body;  // chunked coding removed
  bool complete = false;

  // Value of a header (lower-case name), or empty.
  std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
  // One field of x-route-decision.
  std::string route(const std::string& name) const {
    const std::string all = ";" + header("x-route-decision") + ";";
    const size_t at = all.find(";" + name + "=");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 2;
    return all.substr(begin, all.find(';', begin) - begin);
  }
};

inline std::string http_post(const std::string& path, const std::string& body,
                             const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: " +
         std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

inline Answer read_answer(RawPeer& peer) {
  Answer answer;
  answer.head = peer.read_until("\r\n\r\n");
  if (answer.head.size() < 12) return answer;
  answer.status = std::atoi(answer.head.c_str() + 9);
  const std::string length = answer.header("content-length");
  if (!length.empty()) {
    answer.body = peer.read_some(std::stoul(length));
    answer.complete = answer.body.size() == std::stoul(length);
    return answer;
  }
  while (true) {
    const std::string line = peer.read_until("\r\n");
    if (line.size() < 3) return answer;
    const size_t size = std::stoul(line, nullptr, 16);
    answer.body += peer.read_some(size);
    if (peer.read_some(2) != "\r\n") return answer;
    if (size == 0) break;
  }
  answer.complete = true;
  return answer;
}

inline std::string chat_body(const std::string& persona, const std::string& question, bool stream = false) {
  bj::object system, user, body;
  system["role"] = "system";
  system["content"] = persona;
  user["role"] = "user";
  user["content"] = question;
  body["model"] = "demo";
  body["messages"] = bj::array{system, user};
  body["stream"] = stream;
  return to_json(body);
}

// A gateway in front of some workers, by default probed once and ready.
class TestGateway {
 public:
  static GatewayConfig quick_config() {
    GatewayConfig config;
    config.prober.interval = 50ms;
    config.prober.timeout = 500ms;
    config.prober.suspicion_interval = 20ms;
    config.grace = 0s;
    return config;
  }

  // `looks`: false to use it before it has probed its workers.
  TestGateway(Loop& loop, std::vector<Upstream> workers, GatewayConfig config = quick_config(),
              uint64_t seed = 42, bool looks = true)
      : loop_(loop) {
    config.fleet.workers = std::move(workers);
    loop_.call([&] {
      gateway = std::make_unique<Gateway>(loop_.io, config, clock_, log_, seed);
      const Status status = gateway->start();
      EXPECT_TRUE(status.ok()) << status.ToString();
    });
    EXPECT_TRUE(!looks || loop_.eventually([this] { return gateway->fleet().probed(); }));
  }
  ~TestGateway() {
    if (!drained_) drain();
    loop_.call([this] { gateway.reset(); });
  }
  void drain() {
    drained_ = true;
    loop_.run(gateway->drain());
  }

  RawPeer connect(int receive_buffer = 0) const { return RawPeer::connect(gateway->port(), receive_buffer); }
  Answer ask(const std::string& body, const std::string& headers = "") const {
    return send(gateway->port(), http_post("/v1/chat/completions", body, headers));
  }
  Answer get(const std::string& path) const {
    return send(gateway->port(), "GET " + path + " HTTP/1.1\r\nhost: t\r\n\r\n");
  }
  Answer admin(const std::string& path) const {
    return send(gateway->metrics_port(), "GET " + path + " HTTP/1.1\r\nhost: t\r\n\r\n");
  }
  Answer admin_send(const std::string& method, const std::string& path, const std::string& body,
                    const std::string& headers = "") const {
    const std::string bytes = http_post(path, body, headers);
    return send(gateway->metrics_port(), method + bytes.substr(bytes.find(' ')));
  }
  Answer explain(const std::string& body) const {
    return send(gateway->metrics_port(), http_post("/admin/explain", body));
  }
  // Value of a line of /metrics, by its name and labels as printed; -1: no such line.
  double metric(const std::string& line_start) const {
    const std::string text = "\n" + admin("/metrics").body;
    const size_t at = text.find("\n" + line_start + " ");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + line_start.size() + 2);
  }
  std::string worker_state(route::NodeIndex node) {
    return loop_.call(
        [&] { return std::string(route::node_state_name(gateway->router().view().node(node).state)); });
  }
  bool becomes(route::NodeIndex node, const std::string& state) {
    return loop_.eventually(
        [&] { return route::node_state_name(gateway->router().view().node(node).state) == state; });
  }

  std::unique_ptr<Gateway> gateway;

 private:
  static Answer send(uint16_t port, const std::string& bytes) {
    RawPeer peer = RawPeer::connect(port);
    peer.send(bytes);
    return read_answer(peer);
  }

  Loop& loop_;
  SteadyClock clock_;
  Logger log_{LogLevel::kError, -1};
  bool drained_ = false;
};

// A port without a listener, on which a gateway may listen: below those that the kernel gives to outgoing
// connections, one of which would block it. Never the same twice in this process.
inline Endpoint dead_endpoint(Loop& loop) {
  constexpr uint16_t kFirst = 10'000, kCount = 22'000;
  static std::atomic<uint32_t> next{std::random_device()()};
  const asio::ip::address_v4 here = asio::ip::address_v4::loopback();
  while (true) {
    const auto port = static_cast<uint16_t>(kFirst + next++ % kCount);
    boost::system::error_code taken;
    asio::ip::tcp::acceptor probe(loop.io, asio::ip::tcp::v4());
    probe.bind({here, port}, taken);
    if (taken) continue;
    Endpoint endpoint;
    endpoint.host = here.to_string();
    endpoint.port = port;
    return endpoint;
  }
}

}  // namespace troupe::gateway_test
