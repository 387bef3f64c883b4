#include "common/net/http_write.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <string_view>

namespace troupe {
namespace {

// As views, whose lengths are known where they are appended: a head is some twenty of them.
constexpr std::string_view kColon = ": ", kLineEnd = "\r\n";

// This layer alone sets these headers: those from a handler or caller are dropped.
bool is_hop_by_hop(std::string_view name) {
  switch (name.size()) {  // compares with the names of this length only
    case 2:
      return equals_ignore_case(name, "te");
    case 7:
      return equals_ignore_case(name, "upgrade") || equals_ignore_case(name, "trailer");
    case 10:
      return equals_ignore_case(name, "connection") || equals_ignore_case(name, "keep-alive");
    case 14:
      return equals_ignore_case(name, "content-length");
    case 16:
      return equals_ignore_case(name, "proxy-connection");
    case 17:
      return equals_ignore_case(name, "transfer-encoding");
    default:
      return false;
  }
}

void append_number(std::string& out, uint64_t number) {
  std::array<char, 20> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

void append_header(std::string& out, const std::string& name, const std::string& value) {
  if (!is_header_name(name)) throw std::invalid_argument("header name is not a token");
  if (!is_header_value(value)) throw std::invalid_argument("header '" + name + "': control character");
  out.append(name).append(kColon).append(value).append(kLineEnd);
}

}  // namespace

std::string_view status_reason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case 508:
      return "Loop Detected";
    default:
      return "Status";
  }
}

void append_answer_head(std::string& out, const AnswerHeadSpec& spec) {
  out.append("HTTP/1.1 ");
  append_number(out, static_cast<uint64_t>(spec.status));
  out.append(" ").append(status_reason(spec.status)).append("\r\n");
  bool dated = spec.date.empty();
  for (const HeaderList* const headers : {spec.headers, spec.more}) {
    if (headers == nullptr) continue;
    for (const auto& [name, value] : *headers) {
      if (is_hop_by_hop(name)) continue;
      if (equals_ignore_case(name, "date")) dated = true;
      append_header(out, name, value);
    }
  }
  if (!dated) out.append("date: ").append(spec.date).append("\r\n");
  if (spec.framing == BodyFraming::kChunked) out.append("transfer-encoding: chunked\r\n");
  if (spec.framing == BodyFraming::kLength) {
    out.append("content-length: ");
    append_number(out, spec.content_length);
    out.append("\r\n");
  }
  if (!spec.keep_alive) {
    out.append("connection: close\r\n");
  } else if (spec.http_1_0) {
    out.append("connection: keep-alive\r\n");
  }
  out.append("\r\n");
}

void append_request_head(std::string& out, const RequestHeadSpec& spec) {
  const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
  if (!is_header_name(spec.method)) throw std::invalid_argument("method is not a token");
  if (spec.target.empty() || !std::all_of(spec.target.begin(), spec.target.end(), visible)) {
    throw std::invalid_argument("target is empty or holds a character that must be percent-encoded");
  }
  out.append(spec.method).append(" ").append(spec.target).append(" HTTP/1.1\r\nhost: ");
  out.append(spec.authority).append("\r\n");
  if (spec.headers != nullptr) {
    for (const auto& [name, value] : *spec.headers) {
      if (is_hop_by_hop(name) || equals_ignore_case(name, "host") || equals_ignore_case(name, "expect")) {
        continue;
      }
      append_header(out, name, value);
    }
  }
  if (spec.content_length > 0 || (spec.method != "GET" && spec.method != "HEAD")) {
    out.append("content-length: ");
    append_number(out, spec.content_length);
    out.append("\r\n");
  }
  out.append("\r\n");
}

void append_chunk_head(std::string& out, size_t bytes) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), bytes, 16).ptr;
  out.append(digits.data(), end).append("\r\n");
}

std::string_view HttpDate::at(std::time_t now) {
  if (now != made_for_) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 40> text{};
    const size_t size = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    text_.assign(text.data(), size);
    made_for_ = now;
  }
  return text_;
}

}  // namespace troupe
