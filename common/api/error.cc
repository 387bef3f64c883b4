#include "common/api/error.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe {

namespace {

void append_string_or_null(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

ApiError make_error(int http_status, std::string_view message, std::string_view type, std::string_view code) {
  ApiError error;
  error.http_status = http_status;
  error.message = message;
  error.type = type;
  error.code = code;
  return error;
}

}  // namespace

std::string ApiError::to_json() const {
  std::string out = "{\"error\":{\"message\":";
  append_json_string(out, message);
  out += ",\"type\":";
  append_json_string(out, type);
  out += ",\"param\":";
  append_string_or_null(out, param);
  out += ",\"code\":";
  append_string_or_null(out, code);
  out += "}}";
  return out;
}

ApiError ApiError::bad_field(std::string_view param, std::string_view message) {
  ApiError error = make_error(400, message, "invalid_request_error", "");
  error.param = param;
  return error;
}

ApiError ApiError::unsupported(std::string_view param, std::string_view message) {
  ApiError error = make_error(400, message, "invalid_request_error", "unsupported_parameter");
  error.param = param;
  return error;
}

ApiError ApiError::not_found_model(std::string_view model) {
  ApiError error = make_error(
      404,
      absl::StrCat("The model '", to_absl(model), "' does not exist; GET /v1/models lists those that do."),
      "invalid_request_error", "model_not_found");
  error.param = "model";
  return error;
}

ApiError ApiError::too_large(std::string_view message) {
  return make_error(413, message, "invalid_request_error", "request_too_large");
}

ApiError ApiError::context_length(std::string_view param, int64_t prompt_tokens, int64_t max_model_len) {
  ApiError error = make_error(400,
                              absl::StrCat("This model's maximum context length is ", max_model_len,
                                           " tokens. However, your prompt has ", prompt_tokens,
                                           " tokens and at least one must be left for the answer. "
                                           "Please shorten the prompt."),
                              "invalid_request_error", "context_length_exceeded");
  error.param = param;
  return error;
}

ApiError ApiError::overloaded(std::string_view message, int retry_after_s) {
  ApiError error = make_error(429, message, "rate_limit_error", "overloaded");
  error.retry_after_s = retry_after_s;
  return error;
}

ApiError ApiError::unavailable(std::string_view message) {
  return make_error(503, message, "server_error", "unavailable");
}

ApiError ApiError::deadline(std::string_view message) {
  return make_error(504, message, "timeout_error", "deadline_exceeded");
}

ApiError ApiError::internal(std::string_view message) {
  return make_error(500, message, "server_error", "internal_error");
}

}  // namespace troupe
