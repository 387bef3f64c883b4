// Bodies that come compressed, memory that is shared between slow clients, and what is sent beside a handler.

#include <zlib.h>

#include "common/net/http_server.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

Task<void> tell_body(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const HeaderList headers;
  std::string body = std::string(request.header("content-encoding")) + "|" + request.body.substr(0, 100) +
                     "|" + std::to_string(request.body.size());
  co_await exchange.respond(200, headers, std::move(body));
}

std::string gzip(std::string_view text) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string post(std::string_view body, const std::string& headers) {
  return "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
         "\r\n" + std::string(body);
}

TEST(HttpEdge, HandlersSeeBodiesAsTheyWereBeforeTheyWereCompressed) {
  Loop loop;
  TestServer server(loop, tell_body);
  const std::string packed = gzip(R"({"model":"m"})");
  RawPeer peer = RawPeer::connect(server.port());
  peer.send(post(packed, "Content-Encoding: gzip\r\n"));
  EXPECT_TRUE(peer.read_answer().ends_with(R"(|{"model":"m"}|13)"));
  peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: GZIP\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char byte : packed) peer.send(std::string("1\r\n") + byte + "\r\n");
  peer.send("0\r\n\r\n");
  EXPECT_TRUE(peer.read_answer().ends_with(R"(|{"model":"m"}|13)"));
  peer.send(post("", "Content-Encoding: gzip\r\n"));  // nothing is not compressed
  EXPECT_TRUE(peer.read_answer().ends_with("||0"));
  peer.send(post("{}", ""));  // the connection is as good as before
  EXPECT_TRUE(peer.read_answer().ends_with("|{}|2"));
}

TEST(HttpEdge, CompressedBodiesAreRefusedOverTheBoundOrBroken) {
  Loop loop;
  HttpServerOptions options;
  options.body_bytes_max = 1u << 20;
  TestServer server(loop, tell_body, options);
  const std::string bomb = gzip(std::string(32u << 20, ' '));
  struct Case {
    std::string request, status;
  };
  for (const Case& refused : {Case{post(bomb, "Content-Encoding: gzip\r\n"), "413"},
                              Case{post("no gzip", "Content-Encoding: gzip\r\n"), "400"},
                              Case{post(bomb.substr(0, 50), "Content-Encoding: gzip\r\n"), "400"},
                              Case{post("x", "Content-Encoding: br\r\n"), "415"}}) {
    RawPeer peer = RawPeer::connect(server.port());
    peer.send(refused.request);
    const std::string answer = peer.read_answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + refused.status)) << answer;
  }
}

TEST(HttpEdge, StalledBodiesMakeRoomForOthersAndSmallOnesPass) {
  Loop loop;
  HttpServerOptions options;
  options.bodies_bytes_max = 1u << 20;
  TestServer server(loop, tell_body, options);
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 800000\r\n\r\n";
  RawPeer stalled = RawPeer::connect(server.port());
  stalled.send(head + std::string(700'000, 'x'));
  std::this_thread::sleep_for(1100ms);
  RawPeer small = RawPeer::connect(server.port());
  small.send(post("{}", ""));
  EXPECT_TRUE(small.read_answer().ends_with("|{}|2"));
  RawPeer large = RawPeer::connect(server.port());
  large.send(head + std::string(800'000, 'y'));
  EXPECT_TRUE(large.read_answer().ends_with("|800000"));
  const std::string answer = stalled.read_answer();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 ")) << answer;
}

struct Beside {
  Exchange* exchange = nullptr;
};

Task<void> stream_late(Exchange& exchange, Beside* beside) {
  beside->exchange = &exchange;
  Timer timer(exchange.executor());
  timer.expires_after(100ms);
  co_await timer.async_wait(use_task);
  const HeaderList headers;
  if (!exchange.head_sent()) co_await exchange.start(200, headers);
  co_await exchange.write("late");
  beside->exchange = nullptr;
  co_await exchange.finish();
}

TEST(HttpEdge, SendsAheadOfAHandlerThatHasNotBegun) {
  for (const std::string version : {"1.1", "1.0"}) {
    Loop loop;
    Beside beside;
    TestServer server(loop, [&beside](Exchange& exchange) { return stream_late(exchange, &beside); });
    RawPeer peer = RawPeer::connect(server.port());
    peer.send("GET / HTTP/" + version + "\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(loop.eventually([&beside] { return beside.exchange != nullptr; }));
    loop.call([&beside] {
      const HeaderList headers = {{"x-early", "yes"}};
      EXPECT_TRUE(beside.exchange->send_ahead(200, headers, ": one\n\n"));
      EXPECT_TRUE(beside.exchange->send_ahead(200, headers, ": two\n\n"));
      return 0;
    });
    const std::string head = peer.read_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 200 ") && head.find("x-early: yes") != std::string::npos) << head;
    const bool chunked = version == "1.1";
    const std::string expected =
        chunked ? "7\r\n: one\n\n\r\n7\r\n: two\n\n\r\n4\r\nlate\r\n0\r\n\r\n" : ": one\n\n: two\n\nlate";
    EXPECT_EQ(peer.read_some(expected.size()), expected);
  }
}

}  // namespace
}  // namespace troupe::net_test
