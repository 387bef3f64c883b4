#include "gateway/upstream/headers.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace troupe {
namespace {

constexpr std::array<std::string_view, 11> kHop{"connection",
                                                "content-length",
                                                "keep-alive",
                                                "proxy-authenticate",
                                                "proxy-authorization",
                                                "proxy-connection",
                                                "te",
                                                "trailer",
                                                "trailers",
                                                "transfer-encoding",
                                                "upgrade"};
constexpr std::array<std::string_view, 8> kNotForWorkers{
    "accept-encoding",     "api-key", "cookie", "expect", "host", "x-api-key", "x-request-id",
    "x-request-timeout-ms"};

template <size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? static_cast<char>(x + 32) : x) ==
           (y >= 'A' && y <= 'Z' ? static_cast<char>(y + 32) : y);
  });
}

// True if `name` is one of the comma-separated tokens of a Connection header.
bool named_by_connection(const HeaderList& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key != "connection") continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      std::string_view token = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      while (!token.empty() && token.front() == ' ') token.remove_prefix(1);
      while (!token.empty() && token.back() == ' ') token.remove_suffix(1);
      if (equal_ignoring_case(token, name)) return true;
    }
  }
  return false;
}

}  // namespace

HeaderList headers_for_worker(const HttpRequest& request) {
  const bool has_connection = !request.header("connection").empty();
  HeaderList out;
  out.reserve(request.headers.size() + 8);
  for (const auto& header : request.headers) {
    const std::string_view name = header.first;
    if (among(kHop, name) || among(kNotForWorkers, name) || name.starts_with("x-troupe-")) continue;
    if (has_connection && named_by_connection(request.headers, name)) continue;
    out.push_back(header);
  }
  return out;
}

void append_hints(const route::PrefixKey& key, bool planned, HeaderList& headers) {
  if (!key.set.is_zero()) {
    headers.emplace_back("x-troupe-set", key.set.hex());
    const size_t length = key.chat ? static_cast<size_t>(key.prefix_messages) : key.prefix_bytes;
    const std::string_view unit = key.chat ? "x-troupe-prefix-messages" : "x-troupe-prefix-bytes";
    headers.emplace_back(unit, std::to_string(length));
  }
  if (planned) headers.emplace_back("x-troupe-planned", "1");
  if (!key.session.is_zero()) headers.emplace_back("x-troupe-session", key.session.hex());
}

HeaderList headers_for_client(const HeaderList& answer, HeaderList own) {
  const size_t own_count = own.size();
  for (const auto& header : answer) {
    const std::string_view name = header.first;
    if (among(kHop, name) || name.starts_with("x-troupe-") || named_by_connection(answer, name)) continue;
    // A browser is told by this gateway what it may keep or let pages read, not by a foreign worker.
    if (name == "set-cookie" || name.starts_with("access-control-")) continue;
    const auto end = own.begin() + static_cast<long>(own_count);
    if (std::any_of(own.begin(), end, [&](const auto& o) { return o.first == name; })) continue;
    own.push_back(header);
  }
  return own;
}

Duration retry_after_of(std::string_view text) {
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return Duration::zero();
  return std::chrono::seconds(std::min<int64_t>(seconds, 86'400));
}

}  // namespace troupe
