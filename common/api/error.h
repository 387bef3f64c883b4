#pragma once

// The error a client receives: OpenAI's error object and its HTTP status.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace troupe {

struct ApiError {
  int http_status = 400;
  std::string message;                         // names the field and the right value
  std::string type = "invalid_request_error";  // OpenAI's error types
  std::string param;                           // JSON path of the field; empty → null
  std::string code;                            // machine-readable; empty → null
  int retry_after_s = 0;                       // > 0: sent as Retry-After

  // {"error":{"message":…,"type":…,"param":…,"code":…}}
  std::string to_json() const;

  static ApiError bad_field(std::string_view param, std::string_view message);    // 400
  static ApiError unsupported(std::string_view param, std::string_view message);  // 400 unsupported_parameter
  static ApiError not_found_model(std::string_view model);                        // 404 model_not_found
  static ApiError too_large(std::string_view message);                            // 413
  static ApiError context_length(std::string_view param, int64_t prompt_tokens,
                                 int64_t max_model_len);                    // 400 context_length_exceeded
  static ApiError overloaded(std::string_view message, int retry_after_s);  // 429
  static ApiError unavailable(std::string_view message);                    // 503
  static ApiError deadline(std::string_view message);                       // 504
  static ApiError internal(std::string_view message);                       // 500
};

// A value, or the ApiError that explains its absence.
template <typename T>
class ApiResult {
 public:
  ApiResult(T value) : state_(std::move(value)) {}         // NOLINT: implicit by design, like StatusOr
  ApiResult(ApiError error) : state_(std::move(error)) {}  // NOLINT
  bool ok() const { return state_.index() == 0; }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  const ApiError& error() const { return std::get<1>(state_); }
  T* operator->() { return &value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(value()); }

 private:
  std::variant<T, ApiError> state_;
};

}  // namespace troupe
