#include "common/net/http_head.h"

#include <gtest/gtest.h>

#include <array>

#include "common/net/chunk_decoder.h"
#include "common/net/http_write.h"

namespace troupe::net_test {
namespace {

std::optional<HttpFault> parse(std::string_view bytes, RequestHead& head) {
  HeadScanner scanner;
  if (scanner.scan(bytes) != HeadScanner::Result::kFound) return HttpFault{0, "no end"};
  EXPECT_EQ(scanner.size(), bytes.size());
  return parse_request_head(bytes, head);
}

TEST(HttpHead, ReadsARequest) {
  RequestHead head;
  const auto fault =
      parse("POST /v1/x?a=b HTTP/1.1\r\nHost: h:1\r\nX-Two:  a b \t\r\nContent-Length: 12\r\n\r\n", head);
  ASSERT_FALSE(fault) << fault->message;
  EXPECT_EQ(head.request.method, "POST");
  EXPECT_EQ(head.request.target, "/v1/x?a=b");
  EXPECT_EQ(head.request.path, "/v1/x");
  EXPECT_EQ(head.request.header("x-two"), "a b");
  EXPECT_EQ(head.request.header("absent"), "");
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_EQ(head.framing, BodyFraming::kLength);
  EXPECT_TRUE(head.request.keep_alive);
}

TEST(HttpHead, TakesTargetsInAbsoluteForm) {
  const std::vector<std::array<std::string, 3>> cases = {
      // target, Host, path and query
      {"http://a/v1/x?q=1", "a", "/v1/x?q=1"},
      {"HTTP://A/x", "a", "/x"},
      {"http://a:80/x", "a", "/x"},
      {"http://a/x", "a:80", "/x"},
      {"https://a/x", "a:443", "/x"},
      {"http://a:8080/x", "a:8080", "/x"},
      {"http://a", "a", "/"},
      {"http://a?q", "a", "/?q"},
      {"http://[::1]:9/x", "[::1]:9", "/x"},
  };
  for (const auto& [target, host, expected] : cases) {
    RequestHead head;
    const auto fault = parse("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n", head);
    ASSERT_FALSE(fault) << target << ": " << fault->message;
    EXPECT_EQ(head.request.target, expected) << target;
    EXPECT_EQ(head.request.path, expected.substr(0, expected.find('?'))) << target;
    EXPECT_EQ(head.request.header("host"), host);
  }
}

struct RefusedHead {
  std::string_view bytes;
  int http_status;
  std::string_view word;  // expected in the message
};

TEST(HttpHead, RefusesAmbiguousHeads) {
  const std::vector<RefusedHead> cases = {
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, "repeated"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400, "malformed Content-Length"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400, "malformed Content-Length"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", 400, "malformed Content-Length"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400, "malformed Content-Length"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\n", 400, "Content-Length"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400, "chunked"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400, "chunked"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 400, "chunked"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
       "repeated"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0b"
       "chunked\r\n\r\n",
       400, "control"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400,
       "together"},
      {"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HTTP/1.0"},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n", 400, "folded"},
      {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400, "folded"},
      {"GET / HTTP/1.1\r\n\r\n", 400, "missing Host"},
      {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, "malformed Host"},
      {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, "malformed Host"},
      {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400, "malformed Host"},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, "repeated Host"},
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "colon"},
      {"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n", 400, "without a colon"},
      {"GET / HTTP/1.1\r\nHost: a\r\n: v\r\n\r\n", 400, "name"},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400, "control"},
      {"GET / HTTP/1.1\rHost: a\r\n\r\n", 400, "HTTP version"},
      {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400, "request line"},
      {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
      {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
      {"GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
      {"GET b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "path"},
      {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "path"},
      {"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "another host"},
      {"GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "another host"},
      {"GET https://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "another host"},
      {"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "authority"},
      {"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "authority"},
      {"GET http://a/ HTTP/1.1\r\n\r\n", 400, "missing Host"},
      {"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "method"},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "version"},
      {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505, "version"},
      {"GET / FTP/1.1\r\nHost: a\r\n\r\n", 400, "request line"},
      {"GET /\r\nHost: a\r\n\r\n", 400, "request line"},
      {"GET  HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
      {"\r\n", 400, "request line"},
      {"GET / HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\n\r\n", 417, "Expect"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: br\r\n\r\n", 415, "Content-Encoding"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip, gzip\r\n\r\n", 415, "Content-Encoding"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\n\r\n", 415,
       "repeated"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: identity, br\r\n\r\n", 415, "Content-Encoding"},
  };
  for (const RefusedHead& refused : cases) {
    RequestHead head;
    const auto fault = parse(refused.bytes, head);
    ASSERT_TRUE(fault) << refused.bytes;
    if (refused.bytes.find("1.1\rHost") != std::string_view::npos) {
      EXPECT_GE(fault->http_status, 400) << refused.bytes;  // a bare CR: any word will do
      continue;
    }
    EXPECT_EQ(fault->http_status, refused.http_status) << refused.bytes << fault->message;
    EXPECT_NE(fault->message.find(refused.word), std::string::npos) << refused.bytes << fault->message;
  }
}

TEST(HttpHead, RefusesNulAndTooManyHeaders) {
  RequestHead head;
  const std::string nul = std::string("GET / HTTP/1.1\r\nHost: a\r\nX: a") + '\0' + "b\r\n\r\n";
  EXPECT_TRUE(parse(nul, head));
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (size_t i = 0; i < kHeaderCountMax; ++i) many += "x: y\r\n";
  const auto fault = parse(many + "\r\n", head);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->http_status, 431);
}

// The parser checks values eight bytes at a time.
TEST(HttpHead, FindsControlCharacterAtEveryPlaceInAValue) {
  for (int byte = 0; byte < 256; ++byte) {
    const bool fit = (byte >= 0x20 && byte != 0x7f) || byte == '\t';
    for (size_t size = 1; size <= 20; ++size) {
      for (size_t at = 0; at < size; ++at) {
        std::string value(size, at % 2 == 0 ? '\x80' : ' ');
        value[at] = static_cast<char>(byte);
        EXPECT_EQ(is_header_value(value), fit) << byte << " at " << at << " of " << size;
      }
    }
  }
}

TEST(HttpHead, RemembersExpectThroughManyMoreHeaders) {
  std::string bytes = "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n";
  for (int i = 0; i < 60; ++i) bytes += "X-" + std::to_string(i) + ": value\r\n";
  RequestHead head;
  const auto fault = parse(bytes + "\r\n", head);
  ASSERT_FALSE(fault) << fault->message;
  EXPECT_TRUE(head.expect_continue);
}

TEST(HttpHead, ScannerFindsTheEndForAnySplit) {
  const std::string head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  HeadScanner scanner;
  for (size_t size = 0; size < head.size(); ++size) {
    ASSERT_EQ(scanner.scan(std::string_view(head).substr(0, size)), HeadScanner::Result::kMore) << size;
  }
  EXPECT_EQ(scanner.scan(head + "tail"), HeadScanner::Result::kFound);
  EXPECT_EQ(scanner.size(), head.size());
  HeadScanner bare;
  EXPECT_EQ(bare.scan("GET / HTTP/1.1\nHost: a\n\n"), HeadScanner::Result::kBareLineFeed);
}

TEST(HttpHead, KeepAliveFollowsVersionAndConnection) {
  RequestHead head;
  ASSERT_FALSE(parse("GET / HTTP/1.0\r\n\r\n", head));
  EXPECT_FALSE(head.request.keep_alive);
  ASSERT_FALSE(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", head));
  EXPECT_TRUE(head.request.keep_alive);
  ASSERT_FALSE(parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n", head));
  EXPECT_FALSE(head.request.keep_alive);
}

TEST(HttpHead, ReadsAnswersAndRefusesInvalidOnes) {
  AnswerHead head;
  ASSERT_FALSE(parse_answer_head("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false, head));
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.framing, BodyFraming::kLength);
  ASSERT_FALSE(parse_answer_head("HTTP/1.1 200\r\n\r\n", false, head));
  EXPECT_EQ(head.framing, BodyFraming::kUntilClose);
  EXPECT_FALSE(head.keep_alive);
  ASSERT_FALSE(parse_answer_head("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, head));
  EXPECT_EQ(head.framing, BodyFraming::kNone);
  for (std::string_view lie :
       {"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 999 X\r\n\r\n", "HTTP/1.1 2000 X\r\n\r\n", "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 101 Up\r\n\r\n"}) {
    EXPECT_TRUE(parse_answer_head(lie, false, head)) << lie;
  }
}

// A gateway adds lines of its own to a worker's, and clients read a hundred.
TEST(HttpHead, AnswersLeaveRoomForAGatewaysOwnLines) {
  std::string bytes = "HTTP/1.1 200 OK\r\n";
  for (size_t i = 0; i < kAnswerHeaderCountMax; ++i) bytes += "x-" + std::to_string(i) + ": v\r\n";
  AnswerHead head;
  EXPECT_FALSE(parse_answer_head(bytes + "\r\n", false, head));
  EXPECT_TRUE(parse_answer_head(bytes + "one: more\r\n\r\n", false, head));
  EXPECT_LE(kAnswerHeaderCountMax, 100u - 12u);
}

TEST(ChunkDecoder, DecodesAnySplit) {
  const std::string wire = "4;ext=\"v\"\r\nWiki\r\n005\r\npedia\r\n0\r\nTrailer: x\r\n\r\nnext";
  for (size_t cut = 1; cut < wire.size(); ++cut) {
    ChunkDecoder decoder;
    std::string out;
    size_t used = 0;
    for (size_t at = 0; at < wire.size() && decoder.state() == ChunkDecoder::State::kMore; at += cut) {
      used += decoder.decode(std::string_view(wire).substr(at, cut), out);
    }
    EXPECT_EQ(decoder.state(), ChunkDecoder::State::kDone) << cut;
    EXPECT_EQ(out, "Wikipedia") << cut;
    EXPECT_EQ(used, wire.size() - 4) << cut;
  }
}

TEST(ChunkDecoder, RefusesMalformedAndEndlessCoding) {
  const std::string endless_extension = "1;" + std::string(20'000, 'x');
  const std::string endless_trailer = "0\r\n" + std::string(20'000, 'x');
  for (std::string_view wire : std::vector<std::string_view>{
           "\r\n", "g\r\n", "-1\r\n", " 1\r\n", "1 \r\n", "0x1\r\n", "1\nx", "1\rx", "1;\n", "1\r\nxy",
           "1\r\nx\rz", "0\r\n\n", "0\r\na\n", "1111111111111111\r\n", endless_extension, endless_trailer}) {
    ChunkDecoder decoder;
    std::string out;
    decoder.decode(wire, out);
    EXPECT_EQ(decoder.state(), ChunkDecoder::State::kMalformed) << wire.substr(0, 40);
    EXPECT_FALSE(decoder.error().empty());
  }
}

TEST(ChunkDecoder, ChecksBodyLimitBeforeTakingTheBytes) {
  ChunkDecoder decoder(10);
  std::string out;
  decoder.decode("8\r\nabcdefgh\r\n3\r\nxyz\r\n", out);
  EXPECT_EQ(decoder.state(), ChunkDecoder::State::kTooLarge);
  EXPECT_EQ(out, "abcdefgh");
}

TEST(HttpWrite, RefusesValuesThatWouldSplitAnAnswer) {
  const HeaderList split = {{"x", "a\r\nSet-Cookie: b"}};
  AnswerHeadSpec spec;
  spec.headers = &split;
  std::string out;
  EXPECT_THROW(append_answer_head(out, spec), std::invalid_argument);
  const HeaderList framing = {{"Content-Length", "99"}, {"transfer-encoding", "chunked"}, {"x", "kept"}};
  spec.headers = &framing;
  spec.content_length = 5;
  out.clear();
  append_answer_head(out, spec);
  EXPECT_EQ(out, "HTTP/1.1 200 OK\r\nx: kept\r\ncontent-length: 5\r\n\r\n");
}

TEST(HttpWrite, FormatsHttpDate) {
  HttpDate date;
  EXPECT_EQ(date.at(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
}

}  // namespace
}  // namespace troupe::net_test
