#pragma once

// Server-sent events of an OpenAI-like server's stream, as they pass: where they are whole, and what they say
// besides text. Errors come in several servers' forms.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/json/json.h"

namespace troupe {

// Number of leading bytes that are whole events (up to and including the last blank line). The first `seen`
// are known to hold none.
size_t whole_events(std::string_view bytes, size_t seen = 0);

// Makes whole events of a stream's pieces, however they cut it, in linear time. Not thread-safe.
class EventHold {
 public:
  // An event longer than that is passed on in parts.
  explicit EventHold(size_t bytes_max) : bytes_max_(bytes_max) {}
  // Cuts `piece`, behind what was held, down to whole events, and holds the rest.
  void keep_whole(std::string& piece);
  // The beginning of an event that is not whole.
  const std::string& held() const { return held_; }

 private:
  const size_t bytes_max_;
  std::string held_;
};

// In whatever case it is written.
bool is_event_stream(std::string_view content_type);

// Whether a body is one, by its beginning, whatever its content type is; nullopt: too little of it has come.
std::optional<bool> begins_as_events(std::string_view body);

// An error, as OpenAI-like servers write it: an `error` that says something, `"object": "error"`, or one of
// the Responses and the Messages API.
bool is_error(const bj::object& object);
// A member that is a string, as a view of `object`; empty: it is absent or of another type.
std::string_view string_member(const bj::object& object, std::string_view name);
// The first error event in these whole events, as OpenAI-like servers report errors after the head: data with
// an `error` or of `"object": "error"`, of `event: error`, or llama.cpp's `error: {…}`; empty: none.
std::string_view error_event(std::string_view events);
// Its JSON as our own errors have it, {"error": …}, and its status; 502 where it names none.
struct StreamError {
  std::string json;
  int status = 502;
};
StreamError parse_error_event(std::string_view event);
StreamError parse_error_json(std::string_view json);  // likewise of an answer that is no event
// Whether these whole events end an answer: [DONE], or the finish reason of its one choice.
bool ends_answer(std::string_view events, bool one_choice = true);
// Whether the last of these whole events is [DONE].
bool contains_done(std::string_view events);

}  // namespace troupe
