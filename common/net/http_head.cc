// All strictness in one place. Every decision uses the head's bytes alone; a head that two programs could
// read in two ways is refused.

#include "common/net/http_head.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace troupe {
namespace {

constexpr size_t kMethodBytesMax = 32;
constexpr size_t kLengthDigitsMax = 18;  // below 2^63

constexpr std::array<bool, 256> make_token_table() {
  std::array<bool, 256> table{};
  for (char c = 'a'; c <= 'z'; ++c) table[static_cast<unsigned char>(c)] = true;
  for (char c = 'A'; c <= 'Z'; ++c) table[static_cast<unsigned char>(c)] = true;
  for (char c = '0'; c <= '9'; ++c) table[static_cast<unsigned char>(c)] = true;
  for (char c : {'!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~'}) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}
constexpr std::array<bool, 256> kTokenTable = make_token_table();

HttpFault bad(std::string message) {
  return {400, std::move(message)};
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Whether one of the next eight bytes is below 0x20, or 0x7f. Tests all at once: a borrow or carry between
// bytes only starts at such a byte.
bool has_control(const char* bytes) {
  constexpr uint64_t kEach = 0x0101010101010101;
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  const uint64_t low = (word - 0x20 * kEach) & ~word;
  const uint64_t delete_is_zero = word ^ (0x7f * kEach);
  const uint64_t deletes = (delete_is_zero - kEach) & ~delete_is_zero;
  return ((low | deletes) & (0x80 * kEach)) != 0;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// Accepts uri-host [":" port]; no user info, no list.
bool is_host(std::string_view host) {
  constexpr std::string_view extra = "-._~!$&'()*+;=:[]%";
  return !host.empty() && std::all_of(host.begin(), host.end(), [extra](char c) {
    return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || extra.find(c) != std::string_view::npos;
  });
}

// In a target of absolute form; empty: there is none.
struct Authority {
  std::string_view name;
  std::string_view default_port;
};
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kSchemes{
    {{"http://", ":80"}, {"https://", ":443"}}};

// Two authorities in one head that differ could be read as two requests: only the port may be left out.
bool same_authority(const Authority& authority, std::string_view host) {
  const auto bare = [&authority](std::string_view name) {
    if (name.ends_with(authority.default_port)) name.remove_suffix(authority.default_port.size());
    return name;
  };
  return equals_ignore_case(bare(authority.name), bare(host));
}

// Takes one line, without its CRLF, off the front. The scanner guarantees that every LF follows a CR.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find("\r\n");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 2);
  return line;
}

// The headers that describe the connection and the body; the same for both directions.
struct FramingHeaders {
  size_t count_max = kHeaderCountMax;
  int content_length_count = 0;
  uint64_t content_length = 0;
  int transfer_encoding_count = 0;
  int host_count = 0;
  bool close = false;
  bool keep_alive = false;
  std::string_view host, expect, content_encoding;  // into the head's own bytes
};

std::optional<HttpFault> read_content_length(std::string_view value, FramingHeaders& seen) {
  if (++seen.content_length_count > 1) return bad("repeated Content-Length: send it once");
  if (value.empty() || value.size() > kLengthDigitsMax ||
      !std::all_of(value.begin(), value.end(), is_digit)) {
    return bad("malformed Content-Length: send a decimal number of bytes");
  }
  for (char c : value) seen.content_length = seen.content_length * 10 + static_cast<uint64_t>(c - '0');
  return std::nullopt;
}

void read_connection(std::string_view value, FramingHeaders& seen) {
  while (!value.empty()) {
    const size_t comma = value.find(',');
    const std::string_view option = trim(value.substr(0, comma));
    if (equals_ignore_case(option, "close")) seen.close = true;
    if (equals_ignore_case(option, "keep-alive")) seen.keep_alive = true;
    value.remove_prefix(comma == std::string_view::npos ? value.size() : comma + 1);
  }
}

std::optional<HttpFault> note_framing(std::string_view name, std::string_view value, FramingHeaders& seen) {
  if (name == "content-length") return read_content_length(value, seen);
  if (name == "transfer-encoding") {
    if (++seen.transfer_encoding_count > 1) return bad("repeated Transfer-Encoding: send it once");
    if (!equals_ignore_case(value, "chunked")) return bad("Transfer-Encoding other than 'chunked'");
  } else if (name == "connection") {
    read_connection(value, seen);
  } else if (name == "host") {
    if (++seen.host_count > 1) return bad("repeated Host: send it once");
    if (!is_host(value)) return bad("malformed Host: send host or host:port");
    seen.host = value;
  } else if (name == "expect") {
    seen.expect = value;
  } else if (name == "content-encoding") {
    if (!seen.content_encoding.empty()) return HttpFault{415, "repeated Content-Encoding: send it once"};
    seen.content_encoding = value;
  }
  return std::nullopt;
}

std::optional<HttpFault> read_header_line(std::string_view line, HeaderList& headers, FramingHeaders& seen) {
  if (line.front() == ' ' || line.front() == '\t') return bad("folded header line (obs-fold)");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return bad("header line without a colon");
  if (!is_header_name(line.substr(0, colon))) {
    return bad("header name is empty or holds a character that is not allowed (a space before the colon?)");
  }
  const std::string_view value = trim(line.substr(colon + 1));
  if (!is_header_value(value)) return bad("control character in a header value");
  if (headers.size() == seen.count_max) {
    return HttpFault{431, "more than " + std::to_string(seen.count_max) + " header lines"};
  }
  std::string& name = headers.emplace_back(std::string(line.substr(0, colon)), std::string(value)).first;
  for (char& c : name) c = lower(c);
  // Uses `value`, not the stored copy, which moves when the list grows.
  return note_framing(name, value, seen);
}

std::optional<HttpFault> read_headers(std::string_view rest, HeaderList& headers, FramingHeaders& seen) {
  headers.clear();
  headers.reserve(16);
  for (;;) {
    const std::string_view line = take_line(rest);
    if (line.empty()) break;
    if (auto fault = read_header_line(line, headers, seen)) return fault;
  }
  if (!rest.empty()) return bad("bytes after the head's blank line");
  if (seen.transfer_encoding_count > 0 && seen.content_length_count > 0) {
    return bad("Transfer-Encoding and Content-Length together: send one of them");
  }
  return std::nullopt;
}

std::optional<ContentCoding> coding_of(std::string_view value) {
  if (value.empty() || equals_ignore_case(value, "identity")) return ContentCoding::kIdentity;
  if (equals_ignore_case(value, "gzip") || equals_ignore_case(value, "x-gzip")) return ContentCoding::kGzip;
  if (equals_ignore_case(value, "deflate")) return ContentCoding::kDeflate;
  return std::nullopt;
}

// Parses "HTTP/1.x" → x, else nothing.
std::optional<int> minor_version(std::string_view version) {
  if (version == "HTTP/1.1") return 1;
  if (version == "HTTP/1.0") return 0;
  return std::nullopt;
}

// The target may be in absolute form, as a client sends it that takes this server for a proxy.
std::optional<HttpFault> read_target(std::string_view target, Authority& authority, HttpRequest& request) {
  if (target.starts_with('/') || target == "*") {
    request.target.assign(target);
    return std::nullopt;
  }
  for (const auto& [scheme, port] : kSchemes) {
    if (!equals_ignore_case(target.substr(0, scheme.size()), scheme)) continue;
    const std::string_view rest = target.substr(scheme.size());
    const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
    authority = {rest.substr(0, end), port};
    if (!is_host(authority.name)) return bad("target's authority is malformed: send http://host:port/path");
    request.target.assign(rest.substr(end));
    if (!request.target.starts_with('/')) request.target.insert(0, 1, '/');
    return std::nullopt;
  }
  return bad("target must be a path that begins with '/', or such as http://host/path");
}

std::optional<HttpFault> read_request_line(std::string_view line, RequestHead& out, Authority& authority) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return bad("malformed request line: send 'METHOD target HTTP/1.1'");
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (method.size() > kMethodBytesMax || !is_header_name(method)) return bad("malformed method");
  const auto minor = minor_version(version);
  if (!minor) {
    if (version.starts_with("HTTP/")) return HttpFault{505, "HTTP version is not 1.1 or 1.0"};
    return bad("malformed request line: send 'METHOD target HTTP/1.1'");
  }
  const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
  if (!std::all_of(target.begin(), target.end(), visible)) {
    return bad("target holds a space, control character or raw non-ASCII byte: percent-encode it");
  }
  out.http_1_0 = *minor == 0;
  out.request.method.assign(method);
  if (auto fault = read_target(target, authority, out.request)) return fault;
  out.request.path.assign(out.request.target, 0, out.request.target.find('?'));
  return std::nullopt;
}

std::optional<HttpFault> read_status_line(std::string_view line, bool& http_1_0, int& status) {
  constexpr const char* kMalformed = "malformed status line";
  if (line.size() < 12 || line[8] != ' ') return bad(kMalformed);
  const auto minor = minor_version(line.substr(0, 8));
  if (!minor) return bad(kMalformed);
  const std::string_view digits = line.substr(9, 3);
  if (!std::all_of(digits.begin(), digits.end(), is_digit)) return bad(kMalformed);
  if (line.size() > 12 && line[12] != ' ') return bad(kMalformed);
  if (!is_header_value(line)) return bad(kMalformed);
  http_1_0 = *minor == 0;
  status = (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0');
  if (status < 100 || status > 599) return bad("status " + std::to_string(status) + " is none");
  return std::nullopt;
}

}  // namespace

bool lists_method(std::string_view methods, std::string_view method) {
  for (size_t at = methods.find(method); at != std::string_view::npos; at = methods.find(method, at + 1)) {
    const size_t end = at + method.size();
    if ((at == 0 || methods[at - 1] == ' ') && (end == methods.size() || methods[end] == ',')) return true;
  }
  return false;
}

std::string_view find_header(const HeaderList& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string_view HttpRequest::header(std::string_view name) const {
  return find_header(headers, name);
}

bool is_header_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](char c) { return kTokenTable[static_cast<unsigned char>(c)]; });
}

bool is_header_value(std::string_view value) {
  while (value.size() >= sizeof(uint64_t) && !has_control(value.data()))
    value.remove_prefix(sizeof(uint64_t));
  return std::all_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
  });
}

bool equals_ignore_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

HeadScanner::Result HeadScanner::scan(std::string_view bytes) {
  while (scanned_ < bytes.size()) {
    const void* found = std::memchr(bytes.data() + scanned_, '\n', bytes.size() - scanned_);
    if (found == nullptr) {
      scanned_ = bytes.size();
      return Result::kMore;
    }
    const size_t at = static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
    if (at == 0 || bytes[at - 1] != '\r') return Result::kBareLineFeed;
    scanned_ = at + 1;
    if (at == line_begin_ + 1) return Result::kFound;  // an empty line
    line_begin_ = scanned_;
  }
  return Result::kMore;
}

std::optional<HttpFault> parse_request_head(std::string_view bytes, RequestHead& out) {
  Authority authority;
  if (auto fault = read_request_line(take_line(bytes), out, authority)) return fault;
  FramingHeaders seen;
  if (auto fault = read_headers(bytes, out.request.headers, seen)) return fault;
  if (seen.host_count == 0 && !out.http_1_0) return bad("missing Host");
  if (out.http_1_0 && seen.transfer_encoding_count > 0)
    return bad("Transfer-Encoding in an HTTP/1.0 request");
  if (!authority.name.empty() && seen.host_count > 0 && !same_authority(authority, seen.host))
    return bad("target names another host than Host does");
  const auto coding = coding_of(seen.content_encoding);
  if (!coding) return HttpFault{415, "Content-Encoding other than gzip, deflate or identity"};
  out.coding = *coding;
  out.expect_continue = false;
  if (!seen.expect.empty() && !out.http_1_0) {
    if (!equals_ignore_case(seen.expect, "100-continue")) {
      return HttpFault{417, "Expect other than '100-continue'"};
    }
    out.expect_continue = true;
  }
  out.request.body.clear();
  out.request.keep_alive = !seen.close && (!out.http_1_0 || seen.keep_alive);
  out.content_length = seen.content_length;
  out.framing = seen.transfer_encoding_count > 0 ? BodyFraming::kChunked
                : seen.content_length > 0        ? BodyFraming::kLength
                                                 : BodyFraming::kNone;
  return std::nullopt;
}

std::optional<HttpFault> parse_answer_head(std::string_view bytes, bool to_head_request, AnswerHead& out) {
  bool http_1_0 = false;
  if (auto fault = read_status_line(take_line(bytes), http_1_0, out.status)) return fault;
  FramingHeaders seen;
  seen.count_max = kAnswerHeaderCountMax;
  if (auto fault = read_headers(bytes, out.headers, seen)) return fault;
  if (http_1_0 && seen.transfer_encoding_count > 0) return bad("Transfer-Encoding in an HTTP/1.0 answer");
  if (out.status == 101) return bad("101 Switching Protocols that nobody asked for");
  out.keep_alive = !seen.close && (!http_1_0 || seen.keep_alive);
  out.content_length = seen.content_length;
  if (to_head_request || out.status < 200 || out.status == 204 || out.status == 304) {
    out.framing = BodyFraming::kNone;
  } else if (seen.transfer_encoding_count > 0) {
    out.framing = BodyFraming::kChunked;
  } else if (seen.content_length_count > 0) {
    out.framing = seen.content_length > 0 ? BodyFraming::kLength : BodyFraming::kNone;
  } else {
    out.framing = BodyFraming::kUntilClose;
    out.keep_alive = false;
  }
  return std::nullopt;
}

}  // namespace troupe
