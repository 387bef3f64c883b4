#pragma once

// Server-sent events, both ways. Source: WHATWG HTML, "Server-sent events" (event stream interpretation).

#include <cstddef>
#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe {

struct SseEvent {
  std::string event;  // empty: "message"
  std::string data;   // lines joined by '\n'
  std::string id;     // the last one seen, also by an earlier event
};

// Bytes in, events out; any split of the bytes gives the same events. Bounded: if an event (its data and the
// line being read) exceeds `event_bytes_max` the parser fails, and stays failed. Bytes after the last empty
// line form no event. Not thread-safe.
class SseParser {
 public:
  explicit SseParser(size_t event_bytes_max = 1u << 20);

  // Calls sink(const SseEvent&) for each completed event and comment(std::string_view) for each comment line.
  template <typename Sink, typename Comment>
  Status feed(std::string_view bytes, Sink&& sink, Comment&& comment);
  template <typename Sink>
  Status feed(std::string_view bytes, Sink&& sink) {
    return feed(bytes, static_cast<Sink&&>(sink), [](std::string_view) {});
  }

 private:
  enum class Line { kIncomplete, kNone, kEvent, kComment };
  // Takes one line off `bytes` (or buffers a part of it); kEvent: event_ is complete.
  StatusOr<Line> take_line(std::string_view& bytes);
  // Interprets the whole line in line_.
  Line read_line();

  size_t event_bytes_max_;
  std::string line_;
  bool skip_lf_ = false;
  bool at_start_ = true;
  bool failed_ = false;
  bool has_data_ = false;
  SseEvent event_;
};

// Appends "data: <json>
//
// ". REQUIRES: json holds no line break.
void append_sse_data(std::string& out, std::string_view json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
// A comment that shows the sender is alive; clients that know the format skip it.
inline constexpr std::string_view kSseHeartbeat = ": hb\n\n";

template <typename Sink, typename Comment>
Status SseParser::feed(std::string_view bytes, Sink&& sink, Comment&& comment) {
  while (!bytes.empty()) {
    auto line = take_line(bytes);
    if (!line.ok()) return line.status();
    if (*line == Line::kEvent) {
      sink(static_cast<const SseEvent&>(event_));
      event_.event.clear();
      event_.data.clear();
      has_data_ = false;
    } else if (*line == Line::kComment) {
      comment(std::string_view(line_).substr(1));
    }
    if (*line != Line::kIncomplete) line_.clear();
  }
  return absl::OkStatus();
}

}  // namespace troupe
