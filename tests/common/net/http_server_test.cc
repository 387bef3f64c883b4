#include "common/net/http_server.h"

#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>

#include "common/json/text.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

// Answers with the request it received: "METHOD target body".
Task<void> echo_handler(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const HeaderList headers = {{"content-type", "text/plain"}};
  std::string body = request.method + " " + request.target + " " + request.body;
  co_await exchange.respond(200, headers, std::move(body));
}

Task<void> stream_handler(Exchange& exchange) {
  const HeaderList headers = {{"content-type", "text/event-stream"}};
  co_await exchange.start(200, headers);
  for (int i = 0; i < 3; ++i) {
    const std::string piece = "piece " + std::to_string(i) + "\n";
    co_await exchange.write(piece);
  }
  co_await exchange.finish();
}

// GET /throw: fails before the head; GET /cut: after the first piece; GET /nothing: sends no answer.
Task<void> failing_handler(Exchange& exchange) {
  const std::string path = exchange.request().path;
  if (path == "/throw") throw std::runtime_error("inner words");
  if (path == "/nothing") co_return;
  const HeaderList headers;
  co_await exchange.start(200, headers);
  co_await exchange.write("some");
  throw std::runtime_error("too late");
}

struct Watched {
  std::atomic<int> started{0};
  std::atomic<int> reason{-1};
  std::atomic<int64_t> bytes_written{0};
  std::atomic<int64_t> ended_ns{0};
};

// Sleeps until cancelled and records the reason.
Task<void> sleep_watched(Exchange& exchange, Watched* watched) {
  ++watched->started;
  Timer timer(exchange.executor());
  timer.expires_after(20s);
  try {
    co_await timer.async_wait(use_task);
  } catch (const boost::system::system_error&) {
    watched->ended_ns = now().time_since_epoch().count();
    watched->reason = static_cast<int>(exchange.cancel_reason());
    throw;
  }
  const HeaderList headers;
  std::string body = "slept";
  co_await exchange.respond(200, headers, std::move(body));
}

// Writes endlessly; the bytes written show whether it is held back.
Task<void> flood_watched(Exchange& exchange, Watched* watched) {
  const std::string piece(64u << 10, 'x');
  const HeaderList headers;
  co_await exchange.start(200, headers);
  ++watched->started;
  for (;;) {
    try {
      co_await exchange.write(piece);
    } catch (const boost::system::system_error&) {
      watched->reason = static_cast<int>(exchange.cancel_reason());
      throw;
    }
    watched->bytes_written += static_cast<int64_t>(piece.size());
  }
}

HttpHandler with(Task<void> (*handler)(Exchange&, Watched*), Watched* watched) {
  return [handler, watched](Exchange& exchange) { return handler(exchange, watched); };
}

TEST(HttpServer, AnswersRequestsOneAfterTheOtherOnOneConnection) {
  Loop loop;
  TestServer server(loop, echo_handler);
  RawPeer peer = RawPeer::connect(server.port());
  for (int i = 0; i < 3; ++i) {
    peer.send("POST /x?y=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    const std::string answer = peer.read_answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_NE(answer.find("\r\ndate: "), std::string::npos) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nPOST /x?y=1 hello")) << answer;
  }
  EXPECT_EQ(server.connections(), 1u);
}

// Answers "yes" if a parser can read the body in place.
Task<void> tell_room(Exchange& exchange) {
  const HeaderList headers;
  const std::string& request = exchange.request().body;
  std::string body = JsonText(request).is_padded() ? "yes" : "no";
  co_await exchange.respond(200, headers, std::move(body));
}

TEST(HttpServer, BodyHasCapacityForInPlaceParsing) {
  Loop loop;
  TestServer server(loop, tell_room);
  RawPeer peer = RawPeer::connect(server.port());
  for (const size_t size : {1u, 15u, 8'192u, 32'768u, 200'000u, 262'144u, 1'000'000u, 100u}) {
    peer.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n");
    peer.send(std::string(size, 'x'));
    EXPECT_TRUE(peer.read_answer().ends_with("\r\n\r\nyes")) << size;
  }
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  Loop loop;
  TestServer server(loop, echo_handler);
  RawPeer peer = RawPeer::connect(server.port());
  std::string requests;
  for (int i = 0; i < 40; ++i) {
    requests += "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
    requests.append(1000, static_cast<char>('a' + i % 26));
  }
  peer.send(requests);  // 43 KB: more than the connection's buffer
  for (int i = 0; i < 40; ++i) {
    const std::string answer = peer.read_answer();
    const std::string body =
        "POST /" + std::to_string(i) + " " + std::string(1000, static_cast<char>('a' + i % 26));
    EXPECT_TRUE(answer.ends_with("\r\n\r\n" + body)) << i << answer;
  }
}

TEST(HttpServer, StreamsChunks) {
  Loop loop;
  TestServer server(loop, stream_handler);
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string answer = peer.read_answer();
  EXPECT_NE(answer.find("transfer-encoding: chunked\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n8\r\npiece 0\n\r\n8\r\npiece 1\n\r\n8\r\npiece 2\n\r\n0\r\n\r\n"))
      << answer;
}

TEST(HttpServer, StreamsToHttp10UntilClose) {
  Loop loop;
  TestServer server(loop, stream_handler);
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("GET / HTTP/1.0\r\n\r\n");
  const std::string answer = peer.read_to_end();
  EXPECT_EQ(answer.find("chunked"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\npiece 0\npiece 1\npiece 2\n")) << answer;
}

TEST(HttpServer, HeadHasHeadersAndNoBody) {
  Loop loop;
  TestServer server(loop, echo_handler);
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("HEAD /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string head = peer.read_until("\r\n\r\n");
  EXPECT_NE(head.find("content-length: 8\r\n"), std::string::npos) << head;
  EXPECT_TRUE(peer.read_answer().ends_with("\r\n\r\nGET /2 "));
  TestServer streaming(loop, stream_handler);
  RawPeer other = RawPeer::connect(streaming.port());
  other.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(other.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(other.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
}

TEST(HttpServer, SendsContinueWhenAsked) {
  Loop loop;
  TestServer server(loop, echo_handler);
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(peer.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  peer.send("ok");
  EXPECT_TRUE(peer.read_answer().ends_with("POST / ok"));
}

TEST(HttpServer, ReadsChunkedBodies) {
  Loop loop;
  TestServer server(loop, echo_handler);
  RawPeer peer = RawPeer::connect(server.port());
  for (int i = 0; i < 2; ++i) {
    peer.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    EXPECT_TRUE(peer.read_answer().ends_with("POST / abcde"));
  }
}

// Large bodies skip the connection's input buffer; requests pipelined after them must not.
TEST(HttpServer, ReadsBodiesOfAnySizeForAnySplit) {
  Loop loop;
  TestServer server(loop, echo_handler);
  std::mt19937 random(7);
  for (const size_t cut_max : {1u << 10, 1u << 15, 1u << 19}) {
    RawPeer peer = RawPeer::connect(server.port());
    std::string sent;
    std::vector<std::string> bodies;
    for (const size_t size : {1, 20'000, 300'000, 33'000, 0, 70'000}) {
      std::string& body = bodies.emplace_back(size, ' ');
      for (char& c : body) c = static_cast<char>('a' + random() % 26);
      sent += "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n" + body;
    }
    std::thread writer([&] {
      for (size_t at = 0; at < sent.size();) {
        const size_t bytes = 1 + random() % cut_max;
        peer.send(std::string_view(sent).substr(at, bytes));
        at += bytes;
      }
    });
    for (const std::string& body : bodies) EXPECT_TRUE(peer.read_answer().ends_with("POST / " + body));
    writer.join();
  }
}

TEST(HttpServer, HandlersExceptionIs500OrCutStream) {
  Loop loop;
  TestServer server(loop, failing_handler);
  RawPeer peer = RawPeer::connect(server.port());
  for (std::string_view path : {"/throw", "/nothing"}) {
    peer.send("GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string answer = peer.read_answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 500 ")) << answer;
    EXPECT_NE(answer.find("\"error\""), std::string::npos) << answer;
    EXPECT_EQ(answer.find("inner words"), std::string::npos) << answer;
  }
  peer.send("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string cut = peer.read_to_end();
  EXPECT_TRUE(cut.ends_with("4\r\nsome\r\n")) << cut;
}

// Time from the client's close to the end of its handler. Pipelined bytes after the request must not hide it.
Duration cancel_latency(Loop& loop, bool hard) {
  Watched watched;
  TestServer server(loop, with(sleep_watched, &watched));
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\n");
  EXPECT_TRUE(loop.eventually([&watched] { return watched.started == 1; }));
  const TimePoint gone = now();
  hard ? peer.reset() : peer.close();
  EXPECT_TRUE(loop.eventually([&watched] { return watched.reason >= 0; }));
  EXPECT_EQ(watched.reason, static_cast<int>(CancelReason::kClientGone));
  EXPECT_TRUE(loop.eventually([&server] { return server.server.connections() == 0; }));
  return Duration(watched.ended_ns - gone.time_since_epoch().count());
}

TEST(HttpServer, ClientsCloseCancelsTheHandlerWithin50Ms) {
  Loop loop;
  for (const bool hard : {false, true}) {
    Duration best = 10s;  // of five: a busy machine may delay one, not all
    for (int i = 0; i < 5; ++i) best = std::min(best, cancel_latency(loop, hard));
    EXPECT_LT(best, 50ms);
  }
}

// Answers what the path says, half a second after the request: /whole, /stream, /throw, or /pause, a stream
// that then pauses until it is cancelled.
Task<void> late_handler(Exchange& exchange, Watched* watched) {
  ++watched->started;
  Timer timer(exchange.executor());
  const std::string path = exchange.request().path;
  const HeaderList headers;
  try {
    if (path == "/pause") {
      co_await exchange.start(200, headers);
      co_await exchange.write("some");
    }
    timer.expires_after(path == "/pause" ? Duration(20s) : Duration(500ms));
    co_await timer.async_wait(use_task);
  } catch (const boost::system::system_error&) {
    watched->reason = static_cast<int>(exchange.cancel_reason());
    throw;
  }
  if (path == "/throw") throw std::runtime_error("inner words");
  std::string body = "late";
  if (path == "/whole") co_return co_await exchange.respond(200, headers, std::move(body));
  co_await exchange.start(200, headers);
  co_await exchange.write(body);
  co_await exchange.write("r");
  co_await exchange.finish();
}

TEST(HttpServer, ClientThatHasOnlyShutDownItsSendingSideGetsItsAnswer) {
  Loop loop;
  Watched watched;
  TestServer server(loop, with(late_handler, &watched));
  for (const bool at_once : {true, false}) {  // with the request, or while it is handled
    for (const std::string path : {"/whole", "/stream", "/throw"}) {
      RawPeer peer = RawPeer::connect(server.port());
      const int started = watched.started;
      peer.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
      if (!at_once) {
        ASSERT_TRUE(loop.eventually([&] { return watched.started > started; }));
      }
      peer.shutdown_send();
      const std::string answer = peer.read_to_end();
      EXPECT_TRUE(answer.starts_with(path == "/throw" ? "HTTP/1.1 500 " : "HTTP/1.1 200 OK\r\n")) << answer;
      EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << answer;
      EXPECT_NE(answer.find("connection: close\r\n"), std::string::npos) << answer;
      const std::string end = path == "/whole"    ? "\r\n\r\nlate"
                              : path == "/stream" ? "4\r\nlate\r\n1\r\nr\r\n0\r\n\r\n"
                                                  : "";
      EXPECT_TRUE(answer.ends_with(end)) << answer;
    }
  }
  EXPECT_EQ(watched.reason, -1);
  EXPECT_TRUE(loop.eventually([&server] { return server.server.connections() == 0; }));
}

TEST(HttpServer, HalfClosedClientGetsTheAnswersOfAllItsRequests) {
  Loop loop;
  Watched watched;
  TestServer server(loop, with(late_handler, &watched));
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("GET /whole HTTP/1.1\r\nHost: a\r\n\r\nGET /whole HTTP/1.1\r\nHost: a\r\n\r\n");
  peer.shutdown_send();
  EXPECT_TRUE(peer.read_answer().ends_with("late"));
  EXPECT_TRUE(peer.read_answer().ends_with("late"));
  EXPECT_EQ(peer.read_to_end(), "");
  EXPECT_EQ(watched.started, 2);
}

// Its stream, of late_handler, has begun and pauses.
RawPeer peer_in_a_pause(TestServer& server) {
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("GET /pause HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(peer.read_until("4\r\nsome\r\n").ends_with("4\r\nsome\r\n"));
  return peer;
}

TEST(HttpServer, ChunksStayWholeForAClientThatHalfClosesBetweenThem) {
  Loop loop;
  Watched watched;
  TestServer server(loop, with(late_handler, &watched));
  RawPeer peer = peer_in_a_pause(server);
  peer.shutdown_send();
  EXPECT_EQ(peer.read_some(1), "0") << "of the next chunk's size";
  EXPECT_EQ(watched.reason, -1);
  peer.close();
}

// It has read all there was, so its kernel says no more than that it sends no more.
TEST(HttpServer, ClientThatClosesInAStreamsPauseIsGone) {
  Loop loop;
  Watched watched;
  TestServer server(loop, with(late_handler, &watched));
  RawPeer peer = peer_in_a_pause(server);
  peer.close();
  EXPECT_TRUE(loop.eventually([&watched] { return watched.reason >= 0; }));
  EXPECT_EQ(watched.reason, static_cast<int>(CancelReason::kClientGone));
}

TEST(HttpServer, ClientThatDoesNotReadHoldsTheHandlerBackAndIsClosed) {
  Loop loop;
  Watched watched;
  HttpServerOptions options;
  options.write_timeout = 1s;
  TestServer server(loop, with(flood_watched, &watched), options);
  RawPeer peer = RawPeer::connect(server.port(), 64 << 10);
  peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(loop.eventually([&watched] { return watched.started == 1; }));
  const TimePoint begin = now();
  ASSERT_TRUE(loop.eventually([&watched] { return watched.reason >= 0; }));
  EXPECT_LT(now() - begin, 1800ms) << "bytes that the kernel takes are none that the client takes";
  EXPECT_EQ(watched.reason, static_cast<int>(CancelReason::kClientSlow));
  EXPECT_LT(watched.bytes_written, 16 << 20);  // only what the kernel's buffers take
  EXPECT_TRUE(loop.eventually([&server] { return server.server.connections() == 0; }));
}

TEST(HttpServer, SlowReaderStaysConnectedWhileItReads) {
  Loop loop;
  Watched watched;
  HttpServerOptions options;
  options.write_timeout = 2s;
  TestServer server(loop, with(flood_watched, &watched), options);
  RawPeer peer = RawPeer::connect(server.port(), 64 << 10);
  peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  for (int i = 0; i < 10; ++i) {  // longer than the time-out in total
    EXPECT_EQ(peer.read_some(2u << 20).size(), 2u << 20);
    std::this_thread::sleep_for(300ms);
  }
  EXPECT_EQ(watched.reason, -1);
}

TEST(HttpServer, DrainLetsRunningRequestsEndAndClosesIdleOnes) {
  Loop loop;
  HttpServerOptions options;
  auto server = std::make_unique<TestServer>(loop, echo_handler, options);
  RawPeer idle = RawPeer::connect(server->port());
  idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(idle.read_answer().find("connection: close"), std::string::npos);
  RawPeer half = RawPeer::connect(server->port());
  half.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
  ASSERT_TRUE(loop.eventually([&server] { return server->server.connections() == 2; }));
  std::this_thread::sleep_for(20ms);
  auto drained = loop.start(server->server.drain(5s));
  EXPECT_TRUE(idle.closed_within(1s));
  half.send("cd");
  const std::string answer = half.read_answer();
  EXPECT_NE(answer.find("connection: close\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("POST / abcd")) << answer;
  EXPECT_EQ(drained.wait_for(2s), std::future_status::ready);
  drained.get();
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
}

TEST(HttpServer, CloseAfterAnswersStillAcceptsConnections) {
  Loop loop;
  TestServer server(loop, echo_handler);
  RawPeer idle = RawPeer::connect(server.port());
  idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(idle.read_answer().find("connection: close"), std::string::npos);
  loop.call([&server] { server.server.close_after_answers(); });
  EXPECT_FALSE(idle.closed_within(50ms)) << "its next request is still answered";
  RawPeer later = RawPeer::connect(server.port());
  for (RawPeer* peer : {&idle, &later}) {
    peer->send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string answer = peer->read_answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
    EXPECT_NE(answer.find("connection: close\r\n"), std::string::npos) << answer;
    EXPECT_TRUE(peer->closed_within(1s));
  }
}

TEST(HttpServer, DrainClosesConnectionAfterHalfAnEmptyLine) {
  Loop loop;
  TestServer server(loop, echo_handler);
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("\r");
  ASSERT_TRUE(loop.eventually([&server] { return server.server.connections() == 1; }));
  std::this_thread::sleep_for(20ms);
  auto drained = loop.start(server.server.drain(5s));
  EXPECT_EQ(drained.wait_for(2s), std::future_status::ready);
  drained.get();
}

TEST(HttpServer, DrainCancelsRequestsAfterTheGrace) {
  Loop loop;
  Watched watched;
  TestServer server(loop, with(sleep_watched, &watched));
  RawPeer peer = RawPeer::connect(server.port());
  peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(loop.eventually([&watched] { return watched.started == 1; }));
  const TimePoint begin = now();
  server.drain(100ms);
  EXPECT_GE(now() - begin, 100ms);
  EXPECT_LT(now() - begin, 2s);
  EXPECT_EQ(watched.reason, static_cast<int>(CancelReason::kShutdown));
  EXPECT_TRUE(peer.read_answer().starts_with("HTTP/1.1 503 "));
}

TEST(HttpServer, RefusesConnectionsOverTheLimitWhileAllAreAnswered) {
  Loop loop;
  Watched watched;
  HttpServerOptions options;
  options.connections_max = 1;
  TestServer server(loop, with(sleep_watched, &watched), options);
  RawPeer first = RawPeer::connect(server.port());
  first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(loop.eventually([&watched] { return watched.started == 1; }));
  RawPeer second = RawPeer::connect(server.port());
  EXPECT_TRUE(second.read_to_end().starts_with("HTTP/1.1 503 "));
  EXPECT_EQ(watched.reason, -1);
}

TEST(HttpServer, IdleConnectionsMakeRoomForNewOnes) {
  Loop loop;
  HttpServerOptions options;
  options.connections_max = 2;
  TestServer server(loop, echo_handler, options);
  const std::string request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  std::vector<RawPeer> peers;
  for (int i = 0; i < 5; ++i) {
    peers.push_back(RawPeer::connect(server.port()));
    peers.back().send(request);
    EXPECT_TRUE(peers.back().read_answer().starts_with("HTTP/1.1 200 ")) << i;
  }
  EXPECT_TRUE(peers[0].closed_within(2s));
  peers[4].send(request);
  EXPECT_TRUE(peers[4].read_answer().starts_with("HTTP/1.1 200 "));
}

Task<void> fail_or_sleep(Exchange& exchange) {
  if (exchange.request().path != "/sleep") co_return co_await failing_handler(exchange);
  Timer timer(exchange.executor());
  timer.expires_after(20s);
  co_await timer.async_wait(use_task);
}

// The value of a header in an answer, or empty.
std::string header_of(const std::string& answer, const std::string& name) {
  const size_t at = answer.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return answer.substr(begin, answer.find("\r\n", begin) - begin);
}

bool is_made_id(const std::string& id) {
  return id.size() == 20 && id.starts_with("req-") &&
         id.find_first_not_of("0123456789abcdef", 4) == std::string::npos;
}

TEST(HttpServer, RefusalsCarryRequestIdAndConfiguredHeaders) {
  Loop loop;
  HttpServerOptions options;
  options.connections_max = 1;
  options.body_bytes_max = 10;
  options.refusal_headers = {{"x-who", "server"}};
  TestServer server(loop, fail_or_sleep, options);
  RawPeer busy = RawPeer::connect(server.port());
  busy.send("GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(loop.eventually([&server] { return server.server.requests_running() == 1; }));
  const std::string full = RawPeer::connect(server.port()).read_to_end();
  busy.close();
  ASSERT_TRUE(loop.eventually([&server] { return server.server.connections() == 0; }));
  RawPeer own = RawPeer::connect(server.port());
  own.send("GET /throw HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-0\r\n\r\n");
  EXPECT_EQ(header_of(own.read_answer(), "x-request-id"), "mine-0");
  EXPECT_TRUE(full.starts_with("HTTP/1.1 503 ")) << full;
  EXPECT_EQ(header_of(full, "x-who"), "server") << full;
  const std::string made = header_of(full, "x-request-id");
  EXPECT_TRUE(is_made_id(made)) << full;
  own.send("POST / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-1\r\nContent-Length: 11\r\n\r\n");
  const std::string too_large = own.read_answer();
  EXPECT_TRUE(too_large.starts_with("HTTP/1.1 413 ")) << too_large;
  EXPECT_EQ(header_of(too_large, "x-request-id"), "mine-1");
  EXPECT_EQ(header_of(too_large, "x-who"), "server");
  own.close();
  ASSERT_TRUE(loop.eventually([&server] { return server.server.connections() == 0; }));
  RawPeer broken = RawPeer::connect(server.port());
  broken.send("GET / HTTP/1.1\r\nX-Request-Id: no-host\r\n\r\n");
  const std::string malformed = broken.read_answer();
  EXPECT_TRUE(malformed.starts_with("HTTP/1.1 400 ")) << malformed;
  EXPECT_TRUE(is_made_id(header_of(malformed, "x-request-id"))) << malformed;
  EXPECT_NE(header_of(malformed, "x-request-id"), made);
}

TEST(HttpServer, ListenNamesAddressItCannotBind) {
  Loop loop;
  TestServer server(loop, echo_handler);
  const Logger log(LogLevel::kError, -1);
  HttpServerOptions options;
  options.port = server.port();
  HttpServer taken(loop.io, options, echo_handler, log);
  const Status status = taken.listen();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("127.0.0.1:" + std::to_string(server.port())),
            std::string::npos)
      << status.ToString();
  options.host = "256.1.1.1";
  HttpServer nowhere(loop.io, options, echo_handler, log);
  EXPECT_FALSE(nowhere.listen().ok());
}

}  // namespace
}  // namespace troupe::net_test
