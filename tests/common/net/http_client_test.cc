#include "common/net/http_client.h"

#include "common/net/task_group.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

Task<void> greet_handler(Exchange& exchange) {
  const HeaderList headers = {{"x-seen", std::string(exchange.request().header("x-sent"))}};
  std::string body = "hello " + exchange.request().body;
  co_await exchange.respond(200, headers, std::move(body));
}

Task<void> numbers_handler(Exchange& exchange) {
  const HeaderList headers;
  co_await exchange.start(200, headers);
  for (int i = 0; i < 20'000; ++i) {
    const std::string piece = std::to_string(i) + " ";
    co_await exchange.write(piece);
  }
  co_await exchange.finish();
}

struct Fetched {
  Status status;
  int http_status = 0;
  std::string x_seen;
  std::string body;
};

Task<Fetched> fetch(HttpClient& client, std::string method, std::string body, Deadline deadline) {
  Fetched fetched;
  ClientRequest request;
  request.method = method;
  request.headers = {{"x-sent", "1"}, {"connection", "upgrade"}, {"content-length", "7"}};
  request.body = body;
  auto answer = co_await client.send(request, deadline);
  fetched.status = answer.status();
  if (!answer.ok()) co_return fetched;
  fetched.http_status = (*answer)->status();
  fetched.x_seen = (*answer)->header("x-seen");
  auto all = co_await (*answer)->read_all(1u << 20);
  fetched.status = all.status();
  if (all.ok()) fetched.body = *all;
  co_return fetched;
}

Task<void> fetch_and_drop(HttpClient* client) {
  const Fetched fetched = co_await fetch(*client, "GET", "", Deadline::never());
  EXPECT_FALSE(fetched.status.ok()) << "cancellation must not look like an answer";
}

struct NeverDone {
  void operator()(const std::exception_ptr&, const Fetched&) const { ADD_FAILURE() << "must not end"; }
};

// A client on a loop, closed on the loop's thread.
struct TestClient {
  TestClient(Loop& on, Endpoint endpoint, HttpClientOptions options = {}) : loop(on) {
    client = std::make_unique<HttpClient>(loop.executor(), std::move(endpoint), options);
  }
  ~TestClient() {
    loop.call([this] { client.reset(); });
  }
  Fetched get(Deadline deadline = Deadline::never()) { return loop.run(fetch(*client, "GET", "", deadline)); }
  std::future<Fetched> start(std::string method, std::string body, Deadline deadline = Deadline::never()) {
    return loop.start(fetch(*client, std::move(method), std::move(body), deadline));
  }
  HttpClientStats stats() {
    return loop.call([this] { return client->stats(); });
  }
  Loop& loop;
  std::unique_ptr<HttpClient> client;
};

// A busy machine may need longer than the default to close during reuse.
HttpClientOptions patient_options() {
  HttpClientOptions options;
  options.stale_window = 5s;
  return options;
}

TEST(HttpClient, ReusesItsConnection) {
  Loop loop;
  TestServer server(loop, greet_handler);
  TestClient client(loop, server.endpoint());
  for (int i = 0; i < 5; ++i) {
    const Fetched fetched = client.start("POST", "you").get();
    EXPECT_TRUE(fetched.status.ok()) << fetched.status.ToString();
    EXPECT_EQ(fetched.http_status, 200);
    EXPECT_EQ(fetched.x_seen, "1");
    EXPECT_EQ(fetched.body, "hello you");
  }
  EXPECT_EQ(client.stats().connects, 1u);
  EXPECT_EQ(client.stats().reuses, 4u);
  EXPECT_EQ(client.stats().idle, 1u);
}

TEST(HttpClient, ReadsAStreamWhole) {
  Loop loop;
  TestServer server(loop, numbers_handler);
  TestClient client(loop, server.endpoint());
  std::string expected;
  for (int i = 0; i < 20'000; ++i) expected += std::to_string(i) + " ";
  EXPECT_EQ(client.get().body, expected);
  EXPECT_EQ(client.get().body, expected);
  EXPECT_EQ(client.stats().connects, 1u);
}

TEST(HttpClient, HeadAnswerHasNoBodyAndKeepsTheConnection) {
  Loop loop;
  TestServer server(loop, greet_handler);
  TestClient client(loop, server.endpoint());
  for (int i = 0; i < 2; ++i) {
    const Fetched fetched = client.start("HEAD", "").get();
    EXPECT_EQ(fetched.http_status, 200);
    EXPECT_EQ(fetched.body, "");
  }
  EXPECT_EQ(client.stats().connects, 1u);
}

TEST(HttpClient, SendsOneWellFormedRequest) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  auto fetching = client.start("POST", "body");
  RawPeer peer = upstream.accept();
  const std::string authority = "127.0.0.1:" + std::to_string(upstream.endpoint.port);
  EXPECT_EQ(peer.read_until("body"),
            "POST / HTTP/1.1\r\nhost: " + authority + "\r\nx-sent: 1\r\ncontent-length: 4\r\n\r\nbody");
  peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 201 Made\r\n");
  peer.send("Content-Length: 2\r\n\r\nok");
  const Fetched fetched = fetching.get();
  EXPECT_EQ(fetched.http_status, 201);
  EXPECT_EQ(fetched.body, "ok");
}

TEST(HttpClient, ReplacesConnectionClosedByTheUpstream) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint, patient_options());
  auto first = client.start("GET", "");
  std::optional<RawPeer> peer(upstream.accept());
  peer->read_until("\r\n\r\n");
  peer->send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
  EXPECT_EQ(first.get().body, "a");
  // Closed during reuse: the request has arrived, but no byte of an answer came.
  auto second = client.start("GET", "");
  peer->read_until("\r\n\r\n");
  peer->close();
  RawPeer other = upstream.accept();
  other.read_until("\r\n\r\n");
  other.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb");
  EXPECT_EQ(second.get().body, "b");
  EXPECT_EQ(client.stats().stale_replaced, 1u);
  // Closed while idle: noticed at once, so nothing is replaced.
  other.close();
  ASSERT_TRUE(loop.eventually([&client] { return client.client->stats().idle == 0; }));
  auto third = client.start("GET", "");
  RawPeer last = upstream.accept();
  last.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nc");
  EXPECT_EQ(third.get().body, "c");
  EXPECT_EQ(client.stats().stale_replaced, 1u);
}

// Runs one request; its connection is in the pool afterwards.
RawPeer pooled_peer(RawListener& upstream, TestClient& client) {
  auto first = client.start("GET", "");
  RawPeer peer = upstream.accept();
  peer.read_until("\r\n\r\n");
  peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(first.get().status.ok());
  return peer;
}

// The client itself must not send a request again that may have killed an upstream.
TEST(HttpClient, DoesNotReplaceConnectionThatDiedLongAfterTheWrite) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  RawPeer peer = pooled_peer(upstream, client);
  auto second = client.start("POST", "poison");
  peer.read_until("poison");
  std::this_thread::sleep_for(150ms);
  peer.close();
  ASSERT_EQ(second.wait_for(2s), std::future_status::ready) << "sent again";
  const Status status = second.get().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status.ToString();
  EXPECT_EQ(send_phase(status), SendPhase::kHead);
  EXPECT_EQ(client.stats().connects, 1u);
  EXPECT_EQ(client.stats().stale_replaced, 0u);
}

// RFC 9110, 15.5.9: the peer has closed an idle connection, and says so.
TEST(HttpClient, ReplacesAConnectionThatTimedOutWhileIdle) {
  constexpr const char* kTimedOut =
      "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint, patient_options());
  RawPeer peer = pooled_peer(upstream, client);
  auto second = client.start("POST", "once");
  peer.read_until("once");
  peer.send(kTimedOut);
  RawPeer other = upstream.accept();
  other.read_until("once");
  other.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb");
  EXPECT_EQ(second.get().body, "b");
  EXPECT_EQ(client.stats().stale_replaced, 1u);
  // An answer to the request itself: on a new connection, or one that stays.
  auto third = client.start("POST", "third");
  other.read_until("third");
  other.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(third.get().http_status, 408);
  other.close();
  ASSERT_TRUE(loop.eventually([&client] { return client.client->stats().idle == 0; }));
  auto fourth = client.start("POST", "fourth");
  RawPeer fresh = upstream.accept();
  fresh.read_until("fourth");
  fresh.send(kTimedOut);
  EXPECT_EQ(fourth.get().http_status, 408);
  EXPECT_EQ(client.stats().stale_replaced, 1u);
}

TEST(HttpClient, Late408IsAnAnswer) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  RawPeer peer = pooled_peer(upstream, client);
  auto second = client.start("POST", "slow");
  peer.read_until("slow");
  std::this_thread::sleep_for(150ms);
  peer.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(second.get().http_status, 408);
  EXPECT_EQ(client.stats().stale_replaced, 0u);
}

TEST(HttpClient, FailedReplacementStillReportsTheRequestAsWritten) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint, patient_options());
  RawPeer peer = pooled_peer(upstream, client);
  upstream.close();
  auto second = client.start("POST", "once");
  peer.read_until("once");
  peer.close();
  const Status status = second.get().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status.ToString();
  EXPECT_EQ(send_phase(status), SendPhase::kHead) << status.ToString();
  EXPECT_EQ(client.stats().stale_replaced, 1u);
}

TEST(HttpClient, DoesNotReplaceOnceAnAnswerHasBegun) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  auto first = client.start("GET", "");
  RawPeer peer = upstream.accept();
  peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(first.get().status.ok());
  auto second = client.start("GET", "");
  peer.read_until("\r\n\r\n");
  peer.read_until("\r\n\r\n");
  peer.send("HTTP/1.1 2");
  peer.close();
  const Status status = second.get().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status.ToString();
  EXPECT_EQ(send_phase(status), SendPhase::kHead);
  EXPECT_EQ(client.stats().connects, 1u);
}

TEST(HttpClient, ReportsThePhaseInWhichTheUpstreamDied) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  auto head = client.start("GET", "");
  upstream.accept().read_until("\r\n\r\n");
  EXPECT_EQ(send_phase(head.get().status), SendPhase::kHead);
  for (std::string_view partial : {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
                                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}) {
    auto body = client.start("GET", "");
    RawPeer peer = upstream.accept();
    peer.read_until("\r\n\r\n");
    peer.send(partial);
    peer.close();
    const Status status = body.get().status;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status.ToString();
    EXPECT_EQ(send_phase(status), SendPhase::kBody);
  }
  upstream.close();
  const Status refused = client.get().status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(send_phase(refused), SendPhase::kConnect);
  EXPECT_NE(std::string(refused.message()).find(upstream.endpoint.authority()), std::string::npos);
}

TEST(HttpClient, RefusesInvalidAnswers) {
  Loop loop;
  const std::string endless(70'000, 'x');
  const std::vector<std::string> lies = {
      "SSH-2.0-OpenSSH_9.2\r\n\r\n",
      "HTTP/1.1 OK\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\nContent-Length: 1\n\na",
      "HTTP/1.1 200 OK\r\nX: " + endless,
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnothex\r\n",
      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
  };
  for (const std::string& lie : lies) {
    RawListener upstream;
    TestClient client(loop, upstream.endpoint);
    auto fetching = client.start("GET", "");
    RawPeer peer = upstream.accept();
    peer.read_until("\r\n\r\n");
    peer.send(lie);
    const Status status = fetching.get().status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << lie.substr(0, 60) << status.ToString();
    EXPECT_NE(std::string(status.message()).find(upstream.endpoint.authority()), std::string::npos);
    EXPECT_TRUE(peer.closed_within(2s)) << lie.substr(0, 60);
  }
}

TEST(HttpClient, DoesNotReuseConnectionWithUnexpectedBytes) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  auto fetching = client.start("GET", "");
  RawPeer peer = upstream.accept();
  peer.read_until("\r\n\r\n");
  peer.send(
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
  EXPECT_EQ(fetching.get().body, "a");
  EXPECT_TRUE(peer.closed_within(2s));
  EXPECT_EQ(client.stats().idle, 0u);
}

TEST(HttpClient, AcceptsAnswerBeforeTheBodyIsSent) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  auto fetching = client.start("POST", std::string(32u << 20, 'x'));
  RawPeer peer = upstream.accept();
  peer.read_until("\r\n\r\n");
  peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
  const Fetched fetched = fetching.get();
  EXPECT_EQ(fetched.http_status, 413) << fetched.status.ToString();
  EXPECT_EQ(fetched.body, "no");
  EXPECT_EQ(client.stats().idle, 0u);
}

TEST(HttpClient, KeepsDeadlinesInEveryPhase) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  const std::vector<std::pair<std::string, SendPhase>> cases = {
      {"", SendPhase::kHead},
      {"HTTP/1.1 200 OK\r\n", SendPhase::kHead},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", SendPhase::kBody},
  };
  for (const auto& [bytes, phase] : cases) {
    const TimePoint begin = now();
    auto fetching = client.start("GET", "", Deadline::after(begin, 150ms));
    RawPeer peer = upstream.accept();
    peer.send(bytes);
    const Status status = fetching.get().status;
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status.ToString();
    EXPECT_EQ(send_phase(status), phase) << status.ToString();
    EXPECT_GE(now() - begin, 150ms);
    EXPECT_LT(now() - begin, 1s);
    EXPECT_TRUE(peer.read_to_end().ends_with("\r\n\r\n"));
  }
  EXPECT_EQ(client.get(Deadline::after(now(), -1ms)).status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(HttpClient, LoopDestroyedDuringAnExchangeLeaksNothing) {
  RawListener upstream;  // LeakSanitizer checks
  auto io = std::make_unique<asio::io_context>(1);
  HttpClient client(io->get_executor(), upstream.endpoint, HttpClientOptions());
  asio::co_spawn(*io, fetch(client, "GET", "", Deadline::never()), NeverDone());
  io->run_for(50ms);
  RawPeer peer = upstream.accept();
  peer.read_until("\r\n\r\n");
  peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
  io->run_for(20ms);
  io.reset();
  EXPECT_TRUE(peer.closed_within(1s));
}

TEST(HttpClient, DroppingOrCancellingAnExchangeClosesItsConnection) {
  Loop loop;
  RawListener upstream;
  TestClient client(loop, upstream.endpoint);
  auto tasks = std::make_unique<TaskGroup>(loop.executor());
  const auto signal = std::make_shared<asio::cancellation_signal>();
  for (std::string_view head : {"", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"}) {
    loop.call([&] { tasks->spawn(fetch_and_drop(client.client.get()), signal); });
    RawPeer peer = upstream.accept();
    peer.read_until("\r\n\r\n");
    peer.send(head);
    std::this_thread::sleep_for(20ms);
    const TimePoint begin = now();
    loop.call([&] { signal->emit(asio::cancellation_type::terminal); });
    EXPECT_TRUE(peer.closed_within(1s));
    EXPECT_LT(now() - begin, 500ms);
    EXPECT_TRUE(loop.eventually([&tasks] { return tasks->size() == 0; }));
  }
  EXPECT_EQ(client.stats().idle, 0u);
  loop.call([&] { tasks.reset(); });
}

TEST(HttpClient, IdleConnectionsTimeOutAndAreBounded) {
  Loop loop;
  TestServer server(loop, greet_handler);
  HttpClientOptions options;
  options.idle_connections_max = 2;
  options.idle_timeout = 200ms;
  TestClient client(loop, server.endpoint(), options);
  std::vector<std::future<Fetched>> fetching;
  for (int i = 0; i < 6; ++i) fetching.push_back(client.start("POST", "x"));
  for (auto& one : fetching) EXPECT_TRUE(one.get().status.ok());
  EXPECT_LE(client.stats().idle, 2u);
  EXPECT_TRUE(loop.eventually([&client] { return client.client->stats().idle == 0; }));
  EXPECT_TRUE(client.get().status.ok());
}

TEST(HttpClient, ResolvesNamesAndReportsUnknownOnes) {
  Loop loop;
  TestServer server(loop, greet_handler);
  Endpoint by_name = server.endpoint();
  by_name.host = "localhost";
  TestClient client(loop, by_name);
  EXPECT_TRUE(client.get().status.ok());
  Endpoint unknown;
  unknown.host = "no-such-host.invalid";
  TestClient lost(loop, unknown);
  const Status status = lost.get().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(send_phase(status), SendPhase::kConnect);
}

TEST(Endpoint, ParsesUrlsAndNamesFaults) {
  for (std::string_view good : {"http://h:8", "h:8", "HTTP://h:8/"}) {
    const auto endpoint = Endpoint::parse(good);
    ASSERT_TRUE(endpoint.ok()) << good;
    EXPECT_EQ(endpoint->authority(), "h:8");
  }
  EXPECT_EQ(Endpoint::parse("http://h")->port, 80);
  EXPECT_EQ(Endpoint::parse("http://[::1]:9")->host, "::1");
  EXPECT_EQ(Endpoint::parse("[::1]:9")->authority(), "[::1]:9");
  EXPECT_EQ(Endpoint::parse("https://h")->url(), "https://h:443");
  EXPECT_EQ(Endpoint::parse("HTTPS://[::1]:9/")->url(), "https://[::1]:9");
  EXPECT_EQ(Endpoint::parse("h:8")->url(), "http://h:8");
  EXPECT_NE(*Endpoint::parse("https://h:8"), *Endpoint::parse("http://h:8"));
  EXPECT_EQ(Endpoint::parse("http://A.Example:8")->url(), "http://a.example:8");
  for (const std::string one : {"http://[0:0:0:0:0:0:0:1]:8", "http://[::0001]:8", "http://[0::1]:8"})
    EXPECT_EQ(Endpoint::parse(one)->url(), "http://[::1]:8") << "one server, one spelling";
  EXPECT_EQ(Endpoint::parse("http://[FD00::A]:8")->url(), "http://[fd00::a]:8");
  for (std::string_view bad : {"https://", "ftp://h", "", "h:", "h:0", "h:65536", "h:1x", "h/path", "h:1:2",
                               "[::1", "http://", "[::1]9", "nonsense", "h/", "[::1]"}) {
    const auto endpoint = Endpoint::parse(bad);
    EXPECT_FALSE(endpoint.ok()) << bad;
    EXPECT_NE(std::string(endpoint.status().message()).find(bad), std::string::npos);
  }
  const std::string no_host(Endpoint::parse("http://a host:8").status().message());
  EXPECT_NE(no_host.find("'a host' is no host"), std::string::npos) << no_host;
  EXPECT_EQ(no_host.find("without"), std::string::npos) << "a path may well be right, as in worker_urls";
  const std::string secret(Endpoint::parse("http://user:secret@h:1").status().message());
  EXPECT_NE(secret.find("credentials"), std::string::npos) << secret;
  EXPECT_EQ(secret.find("secret@"), std::string::npos) << secret;
}

}  // namespace
}  // namespace troupe::net_test
