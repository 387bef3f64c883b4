#include "gateway/upstream/headers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>

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
constexpr std::array<std::string_view, 10> kNotForWorkers{
    "accept-encoding", "api-key", "cookie",    "expect",       "host",
    "origin",          "referer", "x-api-key", "x-request-id", "x-request-timeout-ms"};

// These act on a browser for all of the server that it asks, not for the one answer: cookies, who may read
// what, where else it is to connect, what it is to forget, report or reload.
constexpr std::array<std::string_view, 19> kNotForClients{"accept-ch",
                                                          "accept-ch-lifetime",
                                                          "alt-svc",
                                                          "clear-site-data",
                                                          "critical-ch",
                                                          "expect-ct",
                                                          "nel",
                                                          "public-key-pins",
                                                          "public-key-pins-report-only",
                                                          "refresh",
                                                          "report-to",
                                                          "reporting-endpoints",
                                                          "service-worker-allowed",
                                                          "set-cookie",
                                                          "set-cookie2",
                                                          "set-login",
                                                          "strict-transport-security",
                                                          "timing-allow-origin",
                                                          "use-as-dictionary"};

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

constexpr int64_t kRetryAfterMaxS = 86'400;

// A whole number of seconds, or some servers' decimal one; `per_second`: of another unit.
Duration of_number(std::string_view text, double per_second = 1) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  if (end != last || error == std::errc::invalid_argument || number < 0) return Duration::zero();
  const double seconds = number / per_second;
  const bool most = error == std::errc::result_out_of_range || seconds > static_cast<double>(kRetryAfterMaxS);
  if (most) return std::chrono::seconds(kRetryAfterMaxS);
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

// An HTTP date (RFC 9110 §5.6.7) in any of its three forms. nullopt: none.
std::optional<int64_t> unix_time_of(std::string_view text) {
  constexpr size_t kBytesMax = 64;
  if (text.empty() || text.size() > kBytesMax) return std::nullopt;
  const std::string date(text);
  for (const char* form :
       {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"}) {
    std::tm time{};
    const char* const end = ::strptime(date.c_str(), form, &time);
    if (end != nullptr && *end == '\0') return static_cast<int64_t>(::timegm(&time));
  }
  return std::nullopt;
}

}  // namespace

HeaderList headers_for_worker(const HttpRequest& request) {
  const bool has_connection = !request.header("connection").empty();
  HeaderList out;
  out.reserve(request.headers.size() + 8);
  for (const auto& header : request.headers) {
    const std::string_view name = header.first;
    if (among(kHop, name) || among(kNotForWorkers, name) || name.starts_with("x-troupe-")) continue;
    if (name.starts_with("sec-fetch-")) continue;
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
    // A browser takes this gateway for one server, whose workers have no say in what it keeps or lets pages
    // read.
    if (among(kNotForClients, name) || name.starts_with("access-control-")) continue;
    const auto end = own.begin() + static_cast<long>(own_count);
    if (std::any_of(own.begin(), end, [&](const auto& o) { return o.first == name; })) continue;
    own.push_back(header);
  }
  return own;
}

Duration asked_pause(const HeaderList& answer) {
  const Duration exact = of_number(find_header(answer, "retry-after-ms"), 1000);
  if (exact > Duration::zero()) return exact;
  return retry_after_of(find_header(answer, "retry-after"), find_header(answer, "date"));
}

Duration retry_after_of(std::string_view text, std::string_view date) {
  if (text.empty()) return Duration::zero();
  if (text.front() >= '0' && text.front() <= '9') return of_number(text);
  const auto until = unix_time_of(text);
  if (!until) return Duration::zero();
  // By the clock of the server that wrote both; a date in the past is a clock that differs, not a permission.
  const int64_t now = unix_time_of(date).value_or(std::time(nullptr));
  return std::chrono::seconds(std::clamp<int64_t>(*until - now, 1, kRetryAfterMaxS));
}

}  // namespace troupe
