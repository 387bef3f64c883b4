#pragma once

// One HTTP request in the worker's server: the exchange, its request id, and its record (one counter, one log
// line). All answers go out through here, so each carries x-request-id and each outcome is counted.

#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/core/log.h"
#include "common/core/time.h"
#include "common/net/http_server.h"

namespace troupe {

class HttpCall {
 public:
  // Status counted when no answer went out: nginx's "client closed request".
  static constexpr int kNoAnswer = 499;

  HttpCall(Exchange& exchange, std::string_view endpoint, std::string request_id)
      : exchange_(exchange), endpoint_(endpoint), request_id_(std::move(request_id)) {}

  const HttpRequest& request() const { return exchange_.request(); }
  Exchange& exchange() { return exchange_; }
  std::string_view endpoint() const { return endpoint_; }  // a route's path, or "other"
  const std::string& request_id() const { return request_id_; }
  int code() const { return code_; }

  // Adds headers to the answer, which is not begun.
  void add_headers(const HeaderList& more) { more_.insert(more_.end(), more.begin(), more.end()); }
  Task<void> answer_json(int status, std::string body);
  Task<void> answer_text(std::string_view content_type, std::string body);  // 200
  // Adds Retry-After if the error has one.
  Task<void> fail(ApiError error);
  // Answers 405 with Allow.
  Task<void> fail_method(std::string_view allowed);
  // Starts an event stream: the head goes out with the first exchange().write(); finish() ends it.
  Task<void> start_events();

 private:
  HeaderList headers(std::string_view content_type) const;

  Exchange& exchange_;
  std::string_view endpoint_;
  std::string request_id_;
  HeaderList more_;
  int code_ = kNoAnswer;
};

}  // namespace troupe
