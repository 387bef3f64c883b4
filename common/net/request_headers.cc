#include "common/net/request_headers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

namespace troupe {

std::string_view request_id_of(const HttpRequest& request) {
  constexpr size_t kLengthMax = 128;
  const std::string_view id = request.header("x-request-id");
  const auto visible = [](char c) { return c > ' ' && c < 0x7f; };
  const bool fits = !id.empty() && id.size() <= kLengthMax && std::all_of(id.begin(), id.end(), visible);
  return fits ? id : std::string_view();
}

ApiResult<std::optional<Duration>> timeout_header(const HttpRequest& request, std::string_view name) {
  constexpr int64_t kMsMax = int64_t{1} << 40;  // 35 years; nanoseconds of it still fit
  const std::string_view text = request.header(name);
  if (text.empty()) return std::optional<Duration>();
  int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  const bool is_number = end == text.data() + text.size() && error != std::errc::invalid_argument;
  if (is_number && error == std::errc::result_out_of_range && text.front() != '-') ms = kMsMax;
  if (!is_number || ms < 1)
    return ApiError::bad_field(name,
                               std::string(name) + " must be a whole number of milliseconds, at least 1");
  return std::optional<Duration>(std::chrono::milliseconds(std::min(ms, kMsMax)));
}

ApiResult<Duration> client_timeout(const HttpRequest& request, Duration longest) {
  auto asked = timeout_header(request, kClientTimeoutHeader);
  if (!asked.ok()) return asked.error();
  return std::min(longest, asked->value_or(longest));
}

ApiResult<Deadline> request_deadline(const HttpRequest& request, TimePoint now, Duration longest) {
  auto left = timeout_header(request, kGatewayTimeoutHeader);
  if (!left.ok()) return left.error();
  if (*left) return Deadline::after(now, **left);
  auto timeout = client_timeout(request, longest);
  if (!timeout.ok()) return timeout.error();
  return Deadline::after(now, *timeout);
}

}  // namespace troupe
