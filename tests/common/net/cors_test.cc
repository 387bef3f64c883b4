#include "common/net/cors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/net/http_server.h"
#include "tests/common/net/net_fixture.h"

namespace troupe {
namespace cors_test {

using namespace net_test;
using ::testing::HasSubstr;
using ::testing::Not;

Task<void> answer(Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "text/plain");
  if (exchange.request().path == "/stream") {
    co_await exchange.start(200, headers);
    co_await exchange.write("part");
    co_await exchange.finish();
  } else {
    const int status = exchange.request().method == "OPTIONS" ? 405 : 200;
    co_await exchange.respond(status, headers, "whole");
  }
}

struct Cors : ::testing::Test {
  std::string ask(std::vector<std::string> origins, const std::string& request) {
    HttpServerOptions options;
    options.cors_origins = std::move(origins);
    options.body_bytes_max = 10;
    TestServer server(loop, answer, options);
    RawPeer peer = RawPeer::connect(server.port());
    peer.send(request);
    return peer.read_until("\r\n\r\n");
  }
  static std::string from(const std::string& origin, const std::string& line = "GET / HTTP/1.1") {
    return line + "\r\nhost: t\r\norigin: " + origin + "\r\n";
  }
  Loop loop;
};

TEST_F(Cors, WithoutOriginsNothingIsSaid) {
  EXPECT_THAT(ask({}, from("http://ui.example") + "\r\n"), Not(HasSubstr("access-control")));
  EXPECT_THAT(ask({"*"}, "GET / HTTP/1.1\r\nhost: t\r\n\r\n"), Not(HasSubstr("access-control")));
}

TEST_F(Cors, PagesOfAnAllowedOriginReadEveryAnswer) {
  const std::string whole = ask({"http://ui.example"}, from("http://ui.example") + "\r\n");
  EXPECT_THAT(whole, HasSubstr("access-control-allow-origin: http://ui.example\r\n"));
  EXPECT_THAT(whole, HasSubstr("vary: origin\r\n"));
  EXPECT_THAT(whole, HasSubstr("access-control-expose-headers: x-request-id, x-route-decision"));
  EXPECT_THAT(ask({"*"}, from("http://ui.example", "GET /stream HTTP/1.1") + "\r\n"),
              HasSubstr("access-control-allow-origin: *\r\n"));
  EXPECT_THAT(ask({"*"}, from("http://ui.example", "POST / HTTP/1.1") + "content-length: 11\r\n\r\n"),
              HasSubstr("access-control-allow-origin: *\r\n"))
      << "an error before the handler";
  const std::string other = ask({"http://ui.example"}, from("http://ui.example.evil") + "\r\n");
  EXPECT_THAT(other, Not(HasSubstr("access-control")));
  EXPECT_THAT(other, HasSubstr("vary: origin\r\n")) << "a cache must not give it to others";
}

TEST_F(Cors, PreflightIsAnsweredWithoutTheHandler) {
  const std::string asks =
      "access-control-request-method: POST\r\naccess-control-request-headers: "
      "authorization,content-type\r\n\r\n";
  const std::string yes =
      ask({"http://ui.example"}, from("http://ui.example", "OPTIONS /v1/x HTTP/1.1") + asks);
  EXPECT_THAT(yes, HasSubstr("HTTP/1.1 204 "));
  EXPECT_THAT(yes, HasSubstr("access-control-allow-origin: http://ui.example\r\n"));
  EXPECT_THAT(yes, HasSubstr("access-control-allow-methods: GET, HEAD, POST, DELETE\r\n"));
  EXPECT_THAT(yes, HasSubstr("access-control-allow-headers: authorization,content-type\r\n"));
  EXPECT_THAT(ask({"http://ui.example"}, from("http://other.example", "OPTIONS / HTTP/1.1") + asks),
              HasSubstr("HTTP/1.1 405 "));
  EXPECT_THAT(ask({}, from("http://ui.example", "OPTIONS / HTTP/1.1") + asks), HasSubstr("HTTP/1.1 405 "));
  EXPECT_THAT(ask({"*"}, from("http://ui.example", "OPTIONS / HTTP/1.1") + "\r\n"),
              HasSubstr("HTTP/1.1 405 "))
      << "no question of a browser's";
}

}  // namespace cors_test
}  // namespace troupe
