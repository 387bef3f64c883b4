#include "common/dialects/answer.h"

#include <utility>

namespace troupe {
namespace {

ChoicePiece::Call read_call(const bj::object& fields) {
  ChoicePiece::Call call;
  call.index = static_cast<size_t>(std::max<int64_t>(count_member(fields, "index"), 0));
  call.id = text_member(fields, "id");
  const bj::object* function = object_member(fields, "function");
  if (function == nullptr) return call;
  call.name = text_member(*function, "name");
  call.arguments = text_member(*function, "arguments");
  return call;
}

// A chat's `message` or `delta`.
void read_message(const bj::object& message, ChoicePiece& piece) {
  piece.text = text_member(message, "content");
  piece.reasoning = text_member(message, "reasoning");
  if (piece.reasoning.empty()) piece.reasoning = text_member(message, "reasoning_content");
  const bj::array* calls = array_member(message, "tool_calls");
  if (calls == nullptr) return;
  const bool in_stream =
      !calls->empty() && calls->front().is_object() && calls->front().get_object().contains("index");
  for (const bj::value& item : *calls) {
    if (!item.is_object()) continue;
    ChoicePiece::Call call = read_call(item.get_object());
    if (!in_stream) call.index = piece.calls.size();
    piece.calls.push_back(std::move(call));
  }
}

ChoicePiece read_choice(const bj::object& fields) {
  ChoicePiece piece;
  piece.index = count_member(fields, "index");
  piece.finish = text_member(fields, "finish_reason");
  piece.stop_text = text_member(fields, "stop_reason");
  if (const bj::value* logprobs = fields.if_contains("logprobs")) piece.logprobs = *logprobs;
  const bj::object* message = object_member(fields, "message");
  if (message == nullptr) message = object_member(fields, "delta");
  if (message != nullptr) {
    read_message(*message, piece);
  } else {
    piece.text = text_member(fields, "text");
  }
  return piece;
}

AnswerUsage read_usage(const bj::object& fields) {
  AnswerUsage usage;
  usage.prompt_tokens = count_member(fields, "prompt_tokens");
  usage.completion_tokens = count_member(fields, "completion_tokens");
  if (const bj::object* details = object_member(fields, "prompt_tokens_details"))
    usage.cached_tokens = count_member(*details, "cached_tokens");
  if (const bj::object* details = object_member(fields, "completion_tokens_details"))
    usage.reasoning_tokens = count_member(*details, "reasoning_tokens");
  return usage;
}

// The status that an error has outside of a stream.
int status_of(const AnswerError& error) {
  if (error.code == "deadline_exceeded") return 504;
  if (error.code == "unavailable") return 503;
  if (error.code == "bad_gateway") return 502;
  if (error.type == "rate_limit_error") return 429;
  return error.type == "invalid_request_error" ? 400 : 500;
}

}  // namespace

std::string_view text_member(const bj::object& object, std::string_view name) {
  const bj::value* value = object.if_contains(name);
  return value == nullptr || !value->is_string() ? std::string_view() : std::string_view(value->get_string());
}

int64_t count_member(const bj::object& object, std::string_view name) {
  const bj::value* value = object.if_contains(name);
  return value == nullptr || !value->is_int64() ? 0 : value->get_int64();
}

const bj::object* object_member(const bj::object& object, std::string_view name) {
  const bj::value* value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_object();
}

const bj::array* array_member(const bj::object& object, std::string_view name) {
  const bj::value* value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_array();
}

AnswerPiece read_answer(const bj::object& body) {
  AnswerPiece piece;
  piece.id = text_member(body, "id");
  piece.model = text_member(body, "model");
  piece.created_s = count_member(body, "created");
  if (const bj::array* choices = array_member(body, "choices")) {
    for (const bj::value& item : *choices)
      if (item.is_object()) piece.choices.push_back(read_choice(item.get_object()));
  }
  if (const bj::object* usage = object_member(body, "usage")) piece.usage = read_usage(*usage);
  return piece;
}

std::string id_with(std::string_view prefix, std::string_view id) {
  const size_t dash = id.find('-');
  return std::string(prefix) + std::string(dash == std::string_view::npos ? id : id.substr(dash + 1));
}

std::optional<AnswerError> read_error(const bj::object& body, int status) {
  const bj::value* inner = body.if_contains("error");
  const bool is_bare =
      text_member(body, "object") == "error" || text_member(body, "type") == "error" || status >= 400;
  if ((inner == nullptr || inner->is_null()) && !is_bare) return std::nullopt;
  AnswerError error;
  if (inner != nullptr && inner->is_string()) {
    error.message = std::string_view(inner->get_string());
  } else {
    const bj::object& fields = inner != nullptr && inner->is_object() ? inner->get_object() : body;
    error.message = text_member(fields, "message");
    error.type = text_member(fields, "type");
    error.param = text_member(fields, "param");
    const std::string_view code = text_member(fields, "code");
    error.code = code;
  }
  error.status = status == 0 ? status_of(error) : status;
  return error;
}

bj::object error_object(const AnswerError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? bj::value() : bj::value(bj::string_view(text));
  };
  bj::object fields;
  fields["message"] = bj::string_view(error.message);
  fields["type"] = bj::string_view(error.type);
  fields["param"] = text_or_null(error.param);
  fields["code"] = text_or_null(error.code);
  bj::object body;
  body["error"] = std::move(fields);
  return body;
}

}  // namespace troupe
