#pragma once

// Server-sent events, taken apart. Lines end with \n or \r\n, events with a blank line.

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace troupe {

// Bytes of the first event, its blank line included; all, where it is not whole.
inline size_t first_event_bytes(std::string_view events) {
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

// Calls `see(name, value)` for every line of an event that is a field; a comment's name is empty.
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

}  // namespace troupe
