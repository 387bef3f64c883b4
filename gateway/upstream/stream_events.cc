#include "gateway/upstream/stream_events.h"

#include <algorithm>

#include "common/api/error.h"
#include "common/json/json.h"
#include "gateway/upstream/resume_filter.h"

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

// Bytes of the first event, its blank line included, which ends in one of two ways.
size_t first_event_bytes(std::string_view events) {
  for (size_t at = events.find('\n'); at != std::string_view::npos; at = events.find('\n', at + 1)) {
    const std::string_view rest = events.substr(at + 1);
    if (rest.starts_with('\n')) return at + 2;
    if (at > 0 && events[at - 1] == '\r' && rest.starts_with("\r\n")) return at + 3;
  }
  return events.size();
}

// Calls `see(event)` for every event, until it returns true.
template <typename See>
void for_each_event(std::string_view events, See see) {
  while (!events.empty()) {
    const size_t bytes = first_event_bytes(events);
    if (see(events.substr(0, bytes))) return;
    events.remove_prefix(bytes);
  }
}

// Calls `see(name, value)` for every line of an event, as server-sent events have them.
template <typename See>
void for_each_line(std::string_view event, See see) {
  while (!event.empty()) {
    const size_t end = std::min(event.find('\n'), event.size());
    std::string_view line = event.substr(0, end);
    event.remove_prefix(std::min(end + 1, event.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view value = line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    see(line.substr(0, colon), value);
  }
}

const bj::object* error_of(const StatusOr<bj::value>& data) {
  const bj::object* object = data.ok() ? data->if_object() : nullptr;
  if (object == nullptr) return nullptr;
  const bj::value* error = object->if_contains("error");
  const bj::value* kind = object->if_contains("object");
  const bool has_error = error != nullptr && !error->is_null();
  return has_error || (kind != nullptr && kind->is_string() && kind->get_string() == "error") ? object
                                                                                              : nullptr;
}

bool is_error_event(std::string_view event) {
  bool found = false;
  for_each_line(event, [&](std::string_view name, std::string_view value) {
    found |= name == "error" || (name == "event" && value == "error");
    // In a model's string the quotes would be escaped.
    if (name == "data" && value.find("\"error\"") != std::string_view::npos)
      found |= error_of(parse_json(value)) != nullptr;
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

}  // namespace

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

StreamError parse_error_event(std::string_view event) {
  StreamError parsed;
  for_each_line(event, [&](std::string_view name, std::string_view value) {
    if (!parsed.json.empty() || (name != "data" && name != "error")) return;
    auto data = parse_json(value);
    bj::object* object = data.ok() ? data->if_object() : nullptr;
    if (object == nullptr) {
      parsed.json = ApiError::internal(std::string(value)).to_json();
      return;
    }
    bj::value* inner = object->if_contains("error");
    const bj::object* fields = inner == nullptr ? object : inner->if_object();
    int status = fields == nullptr ? 0 : status_in(*fields);
    if (status == 0) status = status_in(*object);
    if (status == 0) status = status_of_error_event(value);
    if (status != 0) parsed.status = status;
    parsed.json = inner == nullptr ? "{\"error\":" + to_json(*object) + "}" : std::string(value);
  });
  if (parsed.json.empty()) parsed.json = ApiError::internal("the worker reported an error").to_json();
  return parsed;
}

bool ends_answer(std::string_view events, bool one_choice) {
  constexpr std::string_view kReason = "\"finish_reason\"";
  for (size_t at = one_choice ? events.find(kReason) : std::string_view::npos; at != std::string_view::npos;
       at = events.find(kReason, at)) {
    at = events.find_first_not_of(" :", at + kReason.size());
    if (at != std::string_view::npos && events[at] == '"') return true;
  }
  // At a line's beginning: a model may write these words in its answer, too.
  for (const std::string_view done : {"data: [DONE]", "data:[DONE]"}) {
    for (size_t at = events.find(done); at != std::string_view::npos;
         at = events.find(done, at + done.size()))
      if (at == 0 || events[at - 1] == '\n' || events[at - 1] == '\r') return true;
  }
  return false;
}

bool says_done(std::string_view events) {
  while (events.ends_with('\n') || events.ends_with('\r')) events.remove_suffix(1);
  const size_t begin = events.find_last_of("\r\n");
  const std::string_view line = begin == std::string_view::npos ? events : events.substr(begin + 1);
  return line == "data: [DONE]" || line == "data:[DONE]";
}

std::string_view without_leading_comments(std::string_view events) {
  size_t skipped = 0;
  for_each_event(events, [&](std::string_view event) {
    bool has_field = false;
    for_each_line(event, [&](std::string_view name, std::string_view) { has_field |= !name.empty(); });
    if (has_field) return true;
    skipped += event.size();
    return false;
  });
  return events.substr(skipped);
}

}  // namespace troupe
