#include "gateway/upstream/stream_events.h"

#include <absl/strings/match.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/api/error.h"
#include "gateway/upstream/resume_filter.h"
#include "gateway/upstream/sse_lines.h"

namespace troupe {

size_t whole_events(std::string_view bytes, size_t seen) {
  constexpr size_t kBeginning = 3;  // of a blank line
  const size_t from = seen - std::min(seen, kBeginning);
  const std::string_view rest = bytes.substr(from);
  const auto end_of = [from](size_t at, size_t length) {
    return at == std::string_view::npos ? 0 : from + at + length;
  };
  if (rest.ends_with("\n\n")) return bytes.size();  // the usual case: a worker writes whole events
  return std::max(end_of(rest.rfind("\n\n"), 2), end_of(rest.rfind("\r\n\r\n"), 4));
}

void EventHold::keep_whole(std::string& piece) {
  const size_t seen = held_.size();
  if (seen > 0) {
    held_ += piece;
    piece.swap(held_);
  }
  const size_t whole = piece.size() > bytes_max_ ? piece.size() : whole_events(piece, seen);
  if (whole == 0) {
    held_.swap(piece);
    piece.clear();
    return;
  }
  held_.assign(piece, whole);
  piece.resize(whole);
}

namespace {

bool says_nothing(const bj::value& value) {
  return value.is_null() || (value.is_bool() && !value.get_bool()) ||
         (value.is_string() && value.get_string().empty()) ||
         (value.is_object() && value.get_object().empty());
}

bool is_error_json(std::string_view json) {
  const auto value = parse_json(json);
  const bj::object* object = value.ok() ? value->if_object() : nullptr;
  return object != nullptr && is_error(*object);
}

bool is_error_event(std::string_view event) {
  bool found = false;
  for_each_line(event, [&](std::string_view name, std::string_view value) {
    found |= name == "error" || (name == "event" && value == "error");
    // In a model's string the quotes would be escaped.
    if (name == "data" && value.find("\"error\"") != std::string_view::npos) found |= is_error_json(value);
  });
  return found;
}

int status_in(const bj::object& error) {
  for (const char* name : {"code", "status", "status_code"}) {
    const bj::value* code = error.if_contains(name);
    if (code != nullptr && code->is_int64() && code->get_int64() >= 400 && code->get_int64() < 600)
      return static_cast<int>(code->get_int64());
  }
  return 0;
}

// Types of the Messages API that ours do not have.
int status_of_type(const bj::object& error) {
  constexpr std::array<std::pair<std::string_view, int>, 6> kTypes{{{"authentication_error", 401},
                                                                    {"permission_error", 403},
                                                                    {"not_found_error", 404},
                                                                    {"request_too_large", 413},
                                                                    {"api_error", 500},
                                                                    {"overloaded_error", 503}}};
  for (const auto& [type, status] : kTypes)
    if (string_member(error, "type") == type) return status;
  return 0;
}

}  // namespace

bool is_event_stream(std::string_view content_type) {
  return absl::StartsWithIgnoreCase(to_absl(content_type), "text/event-stream");
}

std::optional<bool> begins_as_events(std::string_view body) {
  if (kByteOrderMark.starts_with(body)) return std::nullopt;
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  bool may_be = false;
  for (const std::string_view line : {":", "data:", "event:", "id:", "retry:"}) {
    if (body.starts_with(line)) return true;
    may_be |= line.starts_with(body);
  }
  return may_be ? std::nullopt : std::optional(false);
}

bool is_error(const bj::object& object) {
  const bj::value* error = object.if_contains("error");
  if (error != nullptr && !says_nothing(*error)) return true;
  return string_member(object, "object") == "error" || string_member(object, "type") == "error" ||
         string_member(object, "type") == "response.failed";
}

std::string_view string_member(const bj::object& object, std::string_view name) {
  const bj::value* value = object.if_contains({name.data(), name.size()});
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

std::string_view error_event(std::string_view events) {
  std::string_view found;
  if (events.find("error") == std::string_view::npos) return found;
  for_each_event(events, [&](std::string_view event) {
    if (event.find("error") == std::string_view::npos || !is_error_event(event)) return false;
    found = event;
    return true;
  });
  return found;
}

StreamError parse_error_json(std::string_view json) {
  StreamError parsed;
  auto data = parse_json(json);
  const bj::object* object = data.ok() ? data->if_object() : nullptr;
  if (object == nullptr) {
    parsed.json = ApiError::internal(std::string(json)).to_json();
    return parsed;
  }
  const bj::value* response = object->if_contains("response");  // of response.failed
  if (response != nullptr && response->is_object() && string_member(*object, "type") == "response.failed")
    object = &response->get_object();
  const bj::value* inner = object->if_contains("error");
  const bj::object* fields = inner == nullptr ? object : inner->if_object();
  int status = fields == nullptr ? 0 : status_in(*fields);
  if (status == 0) status = status_in(*object);
  if (status == 0) status = status_of_error_event(json);
  if (status == 0 && fields != nullptr) status = status_of_type(*fields);
  if (status != 0) parsed.status = status;
  parsed.json = inner == nullptr      ? "{\"error\":" + to_json(*object) + "}"
                : response == nullptr ? std::string(json)
                                      : "{\"error\":" + to_json(*inner) + "}";
  return parsed;
}

StreamError parse_error_event(std::string_view event) {
  StreamError parsed;
  for_each_line(event, [&](std::string_view name, std::string_view value) {
    if (parsed.json.empty() && (name == "data" || name == "error")) parsed = parse_error_json(value);
  });
  if (parsed.json.empty()) parsed.json = ApiError::internal("the worker reported an error").to_json();
  return parsed;
}

bool ends_answer(std::string_view events, bool one_choice) {
  constexpr std::string_view kReason = "\"finish_reason\"";
  for (size_t at = one_choice ? events.find(kReason) : std::string_view::npos; at != std::string_view::npos;
       at = events.find(kReason, at)) {
    at = events.find_first_not_of(" :", at + kReason.size());
    // (Some servers write an empty one until there is one.)
    if (at != std::string_view::npos && events[at] == '"' && events.substr(at + 1, 1) != "\"") return true;
  }
  // At a line's beginning: a model may write these words in its answer, too.
  for (const std::string_view done : {"data: [DONE]", "data:[DONE]"}) {
    for (size_t at = events.find(done); at != std::string_view::npos;
         at = events.find(done, at + done.size()))
      if (at == 0 || events[at - 1] == '\n' || events[at - 1] == '\r') return true;
  }
  return false;
}

bool contains_done(std::string_view events) {
  while (events.ends_with('\n') || events.ends_with('\r')) events.remove_suffix(1);
  const size_t begin = events.find_last_of("\r\n");
  const std::string_view line = begin == std::string_view::npos ? events : events.substr(begin + 1);
  return line == "data: [DONE]" || line == "data:[DONE]";
}

}  // namespace troupe
