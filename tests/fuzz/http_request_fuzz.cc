// The readers of foreign HTTP bytes: request and answer heads, chunked bodies. Held against Beast's parser as
// an oracle: whatever this strict reader accepts, Beast must read the same way, or two programs in a row
// could disagree about where a request ends.

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/net/chunk_decoder.h"
#include "common/net/http_head.h"

namespace {

namespace http = boost::beast::http;
using troupe::BodyFraming;
using troupe::ChunkDecoder;
using troupe::HeadScanner;

constexpr uint64_t kBodyMax = 1u << 20;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

struct Decoded {
  ChunkDecoder::State state;
  std::string body;
  size_t used = 0;
};

Decoded decode(std::string_view bytes, size_t step) {
  ChunkDecoder decoder(kBodyMax);
  Decoded decoded;
  for (size_t at = 0; at < bytes.size() && decoder.state() == ChunkDecoder::State::kMore; at += step) {
    decoded.used += decoder.decode(bytes.substr(at, step), decoded.body);
  }
  decoded.state = decoder.state();
  require(decoded.used <= bytes.size() && decoded.body.size() <= bytes.size(), "a decoder invents no bytes");
  return decoded;
}

void compare_fields(const troupe::RequestHead& ours, const http::request<http::string_body>& theirs) {
  require(theirs.method_string() == ours.request.method, "same method");
  const bool absolute = !theirs.target().starts_with('/') && theirs.target() != "*";  // ours is its path
  require(absolute || theirs.target() == ours.request.target, "same target");
  require(theirs.version() == (ours.http_1_0 ? 10u : 11u), "same version");
  size_t count = 0;
  for (const auto& field : theirs) {
    (void)field;
    ++count;
  }
  require(count == ours.request.headers.size(), "same number of headers");
  for (const auto& [name, value] : ours.request.headers) {
    const auto [first, last] = theirs.equal_range(name);
    bool found = false;
    for (auto it = first; it != last; ++it) found = found || it->value() == std::string_view(value);
    require(found, "same headers");
  }
}

void compare_with_beast(std::string_view head, std::string_view rest, const troupe::RequestHead& ours) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(1u << 30);
  parser.body_limit(kBodyMax);
  boost::beast::error_code error;
  const size_t used = parser.put(boost::asio::buffer(head.data(), head.size()), error);
  // Beast also checks the grammar of lists in Connection; a length over the limit is refused by the server.
  if (error == http::error::bad_value || error == http::error::body_limit) return;
  require(!error || error == http::error::need_more, "Beast accepts the head");
  require(parser.is_header_done() && used == head.size(), "the head ends at the same byte");
  compare_fields(ours, parser.get());
  require(parser.chunked() == (ours.framing == BodyFraming::kChunked), "same chunked");
  const auto length = parser.content_length();
  require((length ? *length : 0) == ours.content_length, "same content length");
  if (ours.framing != BodyFraming::kChunked) return;
  const Decoded decoded = decode(rest, rest.size() + 1);
  if (decoded.state != ChunkDecoder::State::kDone) return;
  parser.eager(true);
  size_t at = 0;
  while (at < rest.size() && !parser.is_done()) {
    const size_t step = parser.put(boost::asio::buffer(rest.data() + at, rest.size() - at), error);
    if (error && error != http::error::need_more) return;  // it checks the grammar of what we drop
    if (step == 0) return;
    at += step;
  }
  if (!parser.is_done()) return;
  require(parser.get().body() == decoded.body, "same chunked body");
  require(at == decoded.used, "the chunked body ends at the same byte");
}

void scan_is_incremental(std::string_view bytes, HeadScanner::Result whole, size_t size) {
  HeadScanner scanner;
  HeadScanner::Result result = HeadScanner::Result::kMore;
  for (size_t end = 1; end <= bytes.size() && result == HeadScanner::Result::kMore; ++end) {
    result = scanner.scan(bytes.substr(0, end));
  }
  require(result == whole, "cuts do not change where a head ends");
  if (whole == HeadScanner::Result::kFound)
    require(scanner.size() == size, "cuts do not change a head's size");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Decoded whole = decode(bytes, bytes.size() + 1);
  const Decoded cut = decode(bytes, 1);
  require(whole.state == cut.state && whole.body == cut.body && whole.used == cut.used, "cuts do not matter");
  HeadScanner scanner;
  const HeadScanner::Result result = scanner.scan(bytes);
  scan_is_incremental(bytes, result, scanner.size());
  if (result != HeadScanner::Result::kFound) return 0;
  const std::string_view head = bytes.substr(0, scanner.size());
  troupe::AnswerHead answer;
  (void)troupe::parse_answer_head(head, false, answer);
  troupe::RequestHead request;
  if (troupe::parse_request_head(head, request)) return 0;
  compare_with_beast(head, bytes.substr(scanner.size()), request);
  return 0;
}
