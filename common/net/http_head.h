#pragma once

// The one reader of HTTP/1.1 heads, for both ends: raw bytes in, checked values out. No socket, no clock.
//
// Beast's parser is not used, because it accepts what request smuggling is made of (repeated Content-Length,
// `Transfer-Encoding: xchunked`, obs-fold, missing or double Host, TE in HTTP/1.0): the raw head has to be
// read strictly anyway, and two parsers that may disagree about one head are themselves the hole. Beast is
// the oracle instead: tests/fuzz/http_request_fuzz.cc compares every accepted head with it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/net/http_message.h"

namespace troupe {

inline constexpr size_t kHeaderCountMax = 128;  // in a request
// In an answer: a gateway adds lines of its own, and common clients read 100.
inline constexpr size_t kAnswerHeaderCountMax = 84;

// The reason to refuse a head or body, and the answer's status.
struct HttpFault {
  int http_status = 400;
  std::string message;
};

// How a request's body is coded (Content-Encoding).
enum class ContentCoding { kIdentity, kGzip, kDeflate };

// How the end of a body is marked.
enum class BodyFraming { kNone, kLength, kChunked, kUntilClose };

// Finds the end of a head while its bytes come in; reads every byte once.
class HeadScanner {
 public:
  enum class Result { kMore, kFound, kBareLineFeed };
  // `bytes`: all of the head so far, from its first byte. On kFound size() is the head with its blank line.
  Result scan(std::string_view bytes);
  size_t size() const { return scanned_; }
  void reset() { *this = HeadScanner(); }

 private:
  size_t scanned_ = 0;
  size_t line_begin_ = 0;
};

struct RequestHead {
  HttpRequest request;  // without body
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;
  ContentCoding coding = ContentCoding::kIdentity;
  bool expect_continue = false;
  bool http_1_0 = false;
};

// `bytes`: a whole head with its blank line. On a fault `out` is unspecified. A target in absolute form, as
// proxies get it, becomes its path; its authority has to be the one of Host.
std::optional<HttpFault> parse_request_head(std::string_view bytes, RequestHead& out);

struct AnswerHead {
  int status = 0;
  HeaderList headers;  // names lower-case
  BodyFraming framing = BodyFraming::kUntilClose;
  uint64_t content_length = 0;
  bool keep_alive = true;
};

// `to_head_request`: the answer to HEAD has no body whatever its headers say.
std::optional<HttpFault> parse_answer_head(std::string_view bytes, bool to_head_request, AnswerHead& out);

bool is_header_name(std::string_view name);    // a token
bool is_header_value(std::string_view value);  // no control characters but tab
bool equals_ignore_case(std::string_view a, std::string_view b);

}  // namespace troupe
