#include "worker/http/http_call.h"

#include <utility>

namespace troupe {

HeaderList HttpCall::headers(std::string_view content_type) const {
  HeaderList list;
  list.emplace_back("content-type", content_type);
  list.emplace_back("x-request-id", request_id_);
  list.insert(list.end(), more_.begin(), more_.end());
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

}  // namespace troupe
