// Lines are collected whole before they are read: the network may cut a terminator, the byte order mark or a
// field's name anywhere, and only a whole line has a meaning.

#include "common/api/sse.h"

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

struct Field {
  std::string_view name;
  std::string_view value;
};

// Splits "name: value"; one space after the colon belongs to neither. Without a colon the line is the name.
Field split_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return {line, {}};
  std::string_view value = line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  return {line.substr(0, colon), value};
}

}  // namespace

SseParser::SseParser(size_t event_bytes_max) : event_bytes_max_(event_bytes_max) {}

StatusOr<SseParser::Line> SseParser::take_line(std::string_view& bytes) {
  if (failed_) return absl::FailedPreconditionError("SSE stream has failed before");
  if (skip_lf_ && bytes.starts_with('\n')) {  // the second half of a CRLF
    skip_lf_ = false;
    bytes.remove_prefix(1);
    return Line::kIncomplete;
  }
  skip_lf_ = false;
  const size_t end = bytes.find_first_of("\r\n");
  const std::string_view piece = bytes.substr(0, end);
  if (line_.size() + piece.size() + event_.data.size() > event_bytes_max_) {
    failed_ = true;
    return absl::ResourceExhaustedError(
        absl::StrCat("SSE event is larger than the ", event_bytes_max_, " bytes allowed"));
  }
  line_ += piece;
  if (end == std::string_view::npos) {
    bytes = {};
    return Line::kIncomplete;
  }
  skip_lf_ = bytes[end] == '\r';
  bytes.remove_prefix(end + 1);
  return read_line();
}

SseParser::Line SseParser::read_line() {
  if (at_start_ && line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
  at_start_ = false;
  if (line_.empty()) {
    if (has_data_) return Line::kEvent;
    event_.event.clear();  // an event without data is dropped
    return Line::kNone;
  }
  if (line_.front() == ':') return Line::kComment;
  const auto [name, value] = split_field(line_);
  if (name == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  } else if (name == "event") {
    event_.event = value;
  } else if (name == "id" && value.find('\0') == std::string_view::npos) {
    event_.id = value;
  }
  return Line::kNone;
}

void append_sse_data(std::string& out, std::string_view json) {
  out += "data: ";
  out += json;
  out += "\n\n";
}

}  // namespace troupe
