#include "gateway/upstream/error_forms.h"

#include <optional>

#include "common/api/sse.h"
#include "common/dialects/anthropic/anthropic.h"
#include "common/json/json.h"
#include "gateway/upstream/stream_events.h"

namespace troupe {
namespace {

// The error of an OpenAI-like server's body; nullopt: it is none.
std::optional<bj::object> error_in(const bj::object& body) {
  const bj::value* inner = body.if_contains("error");
  if (inner != nullptr && inner->is_object()) return inner->get_object();
  if (inner != nullptr && inner->is_string()) return bj::object{{"message", inner->get_string()}};
  if (inner == nullptr && is_error(body)) return body;
  return std::nullopt;
}

std::string messages_json(const bj::object& error, int status) {
  bj::object fields;
  fields["type"] = bj::string_view(dialect::anthropic::error_type(status));
  fields["message"] = bj::string_view(string_member(error, "message"));
  return to_json(bj::object{{"type", "error"}, {"error", std::move(fields)}});
}

// With `error` beside the documented fields: OpenAI's SDK raises for that alone.
std::string responses_json(const bj::object& error, size_t events) {
  const bj::value* param = error.if_contains("param");
  std::string_view code = string_member(error, "code");
  if (code.empty()) code = string_member(error, "type");
  bj::object event;
  event["type"] = "error";
  event["code"] = bj::string_view(code);
  event["message"] = bj::string_view(string_member(error, "message"));
  event["param"] = param == nullptr ? bj::value() : *param;
  event["sequence_number"] = events;
  event["error"] = error;
  return to_json(event);
}

std::optional<bj::object> object_in(std::string_view json) {
  auto value = parse_json(json);
  bj::object* object = value.ok() ? value->if_object() : nullptr;
  return object == nullptr ? std::nullopt : std::optional<bj::object>(std::move(*object));
}

}  // namespace

AnswerForm error_form(std::string_view path) {
  return path.starts_with("/v1/messages") ? AnswerForm::kMessages : form_of_passed(path);
}

std::string error_body(AnswerForm form, int status, std::string json) {
  if (form != AnswerForm::kMessages) return json;
  const auto body = object_in(json);
  if (!body || string_member(*body, "type") == "error") return json;
  const auto error = error_in(*body);
  return error ? messages_json(*error, status) : json;
}

std::string error_event_for(AnswerForm form, int status, std::string_view json, size_t events) {
  std::string event, data(json);
  const bool named = form == AnswerForm::kMessages || form == AnswerForm::kResponses;
  if (named) event = "event: error\n";
  if (form == AnswerForm::kMessages) data = error_body(form, status, std::move(data));
  if (form == AnswerForm::kResponses) {
    const auto body = object_in(json);
    const auto error = body ? error_in(*body) : std::nullopt;
    if (error) data = responses_json(*error, events);
  }
  append_sse_data(event, data);
  return event;
}

}  // namespace troupe
