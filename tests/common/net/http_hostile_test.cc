// Bad input over real sockets gets a precise OpenAI-shaped error or a closed connection, in time, and does
// not disturb other connections.

#include <atomic>

#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

struct Count {
  std::atomic<int> handled{0};
};

Task<void> count_handler(Exchange& exchange, Count* count) {
  ++count->handled;
  const HeaderList headers;
  std::string body = "ok";
  co_await exchange.respond(200, headers, std::move(body));
}

HttpHandler counting(Count* count) {
  return [count](Exchange& exchange) { return count_handler(exchange, count); };
}

struct Hostile {
  std::string_view what;
  std::string bytes;
  int http_status;
};

TEST(HttpHostile, RefusesSmugglingAndClosesTheConnection) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::vector<Hostile> list = {
      {"CL.CL", head + "Content-Length: 0\r\nContent-Length: 37\r\n\r\n", 400},
      {"CL list", head + "Content-Length: 0, 37\r\n\r\n", 400},
      {"CL sign", head + "Content-Length: -1\r\n\r\n", 400},
      {"CL.TE", head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"TE.CL", head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {"TE xchunked", head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
      {"TE identity", head + "Transfer-Encoding: identity\r\n\r\n", 400},
      {"TE twice", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", 400},
      {"TE folded", head + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400},
      {"TE space before colon", head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
      {"TE in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"bare LF", "GET / HTTP/1.1\nHost: a\n\n", 400},
      {"one bare LF", head + "X: y\nContent-Length: 0\r\n\r\n", 400},
      {"bare CR", head + "X: y\rContent-Length: 3\r\n\r\n", 400},
      {"NUL", head + "X: a" + '\0' + "b\r\n\r\n", 400},
      {"chunk size 0x", head + "Transfer-Encoding: chunked\r\n\r\n0x5\r\n", 400},
      {"chunk LF", head + "Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n", 400},
      {"chunk size huge", head + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", 400},
      {"chunk over limit", head + "Transfer-Encoding: chunked\r\n\r\n7FFFFFFF\r\n", 413},
      {"length over limit", head + "Content-Length: 1073741824\r\n\r\n", 413},
      {"length over limit, waiting", head + "Content-Length: 1073741824\r\nExpect: 100-continue\r\n\r\n",
       413},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"TLS hello", "\x16\x03\x01\x02\x01\xfc\x03\x03\r\n\r\n", 400},
  };
  Loop loop;
  Count count;
  HttpServerOptions options;
  options.body_bytes_max = 1u << 20;
  TestServer server(loop, counting(&count), options);
  for (const Hostile& hostile : list) {
    RawPeer peer = RawPeer::connect(server.port());
    peer.send(hostile.bytes + smuggled);
    const std::string answer = peer.read_answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + std::to_string(hostile.http_status) + " "))
        << hostile.what << "\n"
        << answer;
    EXPECT_NE(answer.find("{\"error\":{\"message\":"), std::string::npos) << hostile.what << "\n" << answer;
    EXPECT_NE(answer.find("connection: close\r\n"), std::string::npos) << hostile.what << "\n" << answer;
    EXPECT_TRUE(peer.closed_within(2s)) << hostile.what;
  }
  EXPECT_EQ(count.handled, 0);
}

TEST(HttpHostile, HeaderBombGets431) {
  Loop loop;
  Count count;
  TestServer server(loop, counting(&count));
  RawPeer one_line = RawPeer::connect(server.port());
  one_line.send("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(1u << 20, 'a'));
  EXPECT_TRUE(one_line.read_answer().starts_with("HTTP/1.1 431 "));
  RawPeer many = RawPeer::connect(server.port());
  std::string head = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 1000; ++i) head += "x-" + std::to_string(i) + ": v\r\n";
  many.send(head + "\r\n");
  EXPECT_TRUE(many.read_answer().starts_with("HTTP/1.1 431 "));
  HttpServerOptions small;
  small.header_bytes_max = 1024;
  TestServer strict(loop, counting(&count), small);
  RawPeer at_once = RawPeer::connect(strict.port());
  at_once.send("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(2000, 'a') + "\r\n\r\n");
  EXPECT_TRUE(at_once.read_answer().starts_with("HTTP/1.1 431 "));
  EXPECT_EQ(count.handled, 0);
}

// The refusal must reach a client that reads only after it has sent everything.
TEST(HttpHostile, OneGigabyteBodyGets413WhileTheClientStillSends) {
  Loop loop;
  Count count;
  TestServer server(loop, counting(&count));
  RawPeer peer = RawPeer::connect(server.port());
  ASSERT_TRUE(peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n"));
  const std::string piece(1u << 20, 'x');
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(peer.send(piece)) << i;
  EXPECT_TRUE(peer.read_answer().starts_with("HTTP/1.1 413 "));
  EXPECT_EQ(count.handled, 0);
}

TEST(HttpHostile, SlowHeadGets408) {
  Loop loop;
  Count count;
  HttpServerOptions options;
  options.header_timeout = 200ms;
  TestServer server(loop, counting(&count), options);
  RawPeer peer = RawPeer::connect(server.port());
  const TimePoint begin = now();
  const std::string head = "GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  for (char c : head) {  // a byte now and then does not extend the time
    if (!peer.send(std::string_view(&c, 1)) || now() - begin > 400ms) break;
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(peer.read_answer().starts_with("HTTP/1.1 408 "));
  EXPECT_TRUE(peer.closed_within(2s));
}

TEST(HttpHostile, SlowBodyGets408) {
  Loop loop;
  Count count;
  HttpServerOptions options;
  options.body_timeout = 200ms;
  TestServer server(loop, counting(&count), options);
  for (std::string_view framing :
       {"Content-Length: 100\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n64\r\n"}) {
    RawPeer peer = RawPeer::connect(server.port());
    peer.send("POST / HTTP/1.1\r\nHost: a\r\n" + std::string(framing));
    for (int i = 0; i < 20 && peer.send("x"); ++i) std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(peer.read_answer().starts_with("HTTP/1.1 408 "));
  }
  EXPECT_EQ(count.handled, 0);
}

TEST(HttpHostile, ClosesIdleConnection) {
  Loop loop;
  Count count;
  HttpServerOptions options;
  options.idle_timeout = 150ms;
  TestServer server(loop, counting(&count), options);
  RawPeer silent = RawPeer::connect(server.port());
  RawPeer used = RawPeer::connect(server.port());
  used.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(used.read_answer().ends_with("ok"));
  EXPECT_TRUE(silent.closed_within(1s));
  EXPECT_TRUE(used.closed_within(1s));
  EXPECT_TRUE(loop.eventually([&server] { return server.server.connections() == 0; }));
}

TEST(HttpHostile, EmptyLinesDoNotKeepAConnectionOpen) {
  Loop loop;
  Count count;
  HttpServerOptions options;
  options.idle_timeout = 200ms;
  TestServer server(loop, counting(&count), options);
  RawPeer peer = RawPeer::connect(server.port());
  const TimePoint begin = now();
  bool closed = false;
  while (!closed && now() - begin < 3s && peer.send("\r\n")) closed = peer.closed_within(50ms);
  EXPECT_LT(now() - begin, 2s);
}

TEST(HttpHostile, ServesNeighboursOfHostileClients) {
  Loop loop;
  Count count;
  TestServer server(loop, counting(&count));
  std::vector<RawPeer> slow;
  for (int i = 0; i < 50; ++i) {
    slow.push_back(RawPeer::connect(server.port()));
    slow.back().send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16000000\r\n\r\nabc");
  }
  RawPeer good = RawPeer::connect(server.port());
  const TimePoint begin = now();
  for (int i = 0; i < 20; ++i) {
    good.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_TRUE(good.read_answer().ends_with("ok"));
  }
  EXPECT_LT(now() - begin, 5s);
}

TEST(HttpHostile, BoundsManyLargeBodiesAtOnce) {
  Loop loop;
  Count count;
  HttpServerOptions options;
  options.bodies_bytes_max = 1u << 20;
  TestServer server(loop, counting(&count), options);
  const std::string part(700u << 10, 'x');
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 800000\r\n\r\n";
  RawPeer first = RawPeer::connect(server.port());
  first.send(head + part);
  std::this_thread::sleep_for(50ms);
  RawPeer second = RawPeer::connect(server.port());
  second.send(head + part);
  EXPECT_TRUE(second.read_answer().starts_with("HTTP/1.1 503 "));
  first.send(std::string(800'000 - part.size(), 'x'));
  EXPECT_TRUE(first.read_answer().ends_with("ok"));
  RawPeer third = RawPeer::connect(server.port());
  third.send(head + std::string(800'000, 'x'));
  EXPECT_TRUE(third.read_answer().ends_with("ok"));
}

// Answers 401 with the body it received.
Task<void> refuse_handler(Exchange& exchange, Count* count) {
  ++count->handled;
  const HeaderList headers;
  std::string body = "got " + std::to_string(exchange.request().body.size());
  co_await exchange.respond(401, headers, std::move(body));
}

TEST(HttpHostile, UnwantedBodyIsNeitherReadNorAskedFor) {
  Loop loop;
  Count count;
  std::atomic<int> asked{0};
  HttpServerOptions options;
  options.bodies_bytes_max = 1;  // no body is held
  options.body_bytes_max = 1u << 20;
  options.wants_body = [&asked](const HttpRequest& head) {
    ++asked;
    return head.header("key") == "right";
  };
  const auto handler = [&count](Exchange& exchange) { return refuse_handler(exchange, &count); };
  TestServer server(loop, handler, options);
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string rest = std::string(100'000, 'x') + "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string all[] = {head + "Content-Length: 200000\r\n\r\n" + rest,
                             head + "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n",
                             head + "Content-Length: 1073741824\r\n\r\n" + rest,
                             head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + rest};
  for (const std::string& bytes : all) {
    RawPeer peer = RawPeer::connect(server.port());
    peer.send(bytes);
    const std::string answer = peer.read_answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 401 ")) << answer;
    EXPECT_TRUE(answer.ends_with("got 0")) << answer;
    EXPECT_NE(answer.find("connection: close\r\n"), std::string::npos) << answer;
    peer.shutdown_send();
    EXPECT_TRUE(peer.closed_within(2s)) << "what follows is no request";
  }
  EXPECT_EQ(count.handled, 4);
  EXPECT_EQ(asked, 4);
}

TEST(HttpHostile, ReceivedBodySkipsTheWantsBodyCheck) {
  Loop loop;
  Count count;
  std::atomic<int> asked{0};
  HttpServerOptions options;
  options.wants_body = [&asked](const HttpRequest&) {
    ++asked;
    return false;
  };
  TestServer server(loop, counting(&count), options);
  RawPeer peer = RawPeer::connect(server.port());
  for (const std::string request : {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"}) {
    peer.send(request);
    EXPECT_TRUE(peer.read_answer().ends_with("ok"));
  }
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace troupe::net_test
