#include "worker/http/http_call.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace troupe {

HeaderList HttpCall::headers(std::string_view content_type) const {
  HeaderList list;
  list.emplace_back("content-type", content_type);
  list.emplace_back("x-request-id", request_id_);
  return list;
}

Task<void> HttpCall::answer_json(int status, std::string body) {
  code_ = status;
  const HeaderList list = headers("application/json");
  co_await exchange_.respond(status, list, std::move(body));
}

Task<void> HttpCall::answer_text(std::string_view content_type, std::string body) {
  code_ = 200;
  const HeaderList list = headers(content_type);
  co_await exchange_.respond(200, list, std::move(body));
}

Task<void> HttpCall::fail(ApiError error) {
  code_ = error.http_status;
  HeaderList list = headers("application/json");
  if (error.retry_after_s > 0) list.emplace_back("retry-after", std::to_string(error.retry_after_s));
  std::string body = error.to_json();
  co_await exchange_.respond(error.http_status, list, std::move(body));
}

Task<void> HttpCall::fail_method(std::string_view allowed) {
  ApiError error;
  error.http_status = 405;
  error.code = "method_not_allowed";
  error.message = request().method + " " + std::string(endpoint_) + ": use " + std::string(allowed);
  code_ = 405;
  HeaderList list = headers("application/json");
  list.emplace_back("allow", allowed);
  std::string body = error.to_json();
  co_await exchange_.respond(405, list, std::move(body));
}

Task<void> HttpCall::start_events() {
  code_ = 200;
  HeaderList list = headers("text/event-stream");
  list.emplace_back("cache-control", "no-cache");
  co_await exchange_.start(200, list);
}

std::string request_id_of(const HttpRequest& request, std::string_view fallback) {
  constexpr size_t kLengthMax = 128;
  const auto id = request.header("x-request-id");
  const auto visible = [](char c) { return c > ' ' && c < 0x7f; };
  const bool fits = !id.empty() && id.size() <= kLengthMax && std::all_of(id.begin(), id.end(), visible);
  return std::string(fits ? id : fallback);
}

namespace {

// nullopt: the header is absent.
ApiResult<std::optional<Duration>> timeout_header(const HttpRequest& request, std::string_view name) {
  const auto text = request.header(name);
  if (text.empty()) return std::optional<Duration>();
  int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  constexpr int64_t kMsMax = int64_t{1} << 40;  // 35 years; nanoseconds of it still fit
  const bool is_number = end == text.data() + text.size() && error != std::errc::invalid_argument;
  if (is_number && error == std::errc::result_out_of_range && text.front() != '-') ms = kMsMax;
  if (!is_number || ms < 1) {
    return ApiError::bad_field(
        name, "header " + std::string(name) + " must be a whole number of milliseconds >= 1");
  }
  return std::optional<Duration>(std::chrono::milliseconds(std::min(ms, kMsMax)));
}

}  // namespace

ApiResult<Deadline> request_deadline(const HttpRequest& request, TimePoint now, Duration longest) {
  auto left = timeout_header(request, "x-troupe-timeout-ms");
  if (!left.ok()) return left.error();
  if (*left) return Deadline::after(now, **left);
  auto asked = timeout_header(request, "x-request-timeout-ms");
  if (!asked.ok()) return asked.error();
  return Deadline::after(now, std::min(longest, asked->value_or(longest)));
}

}  // namespace troupe
