#include "gateway/upstream/model_rename.h"

#include <algorithm>

#include "common/json/json.h"

namespace troupe {
namespace {

constexpr std::string_view kModel = "\"model\"";

size_t after_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// The place after the string that begins at `at`; npos: it is cut.
size_t after_string(std::string_view text, size_t at) {
  at = text.find_first_of("\"\\", at + 1);
  while (at != std::string_view::npos && text[at] == '\\') at = text.find_first_of("\"\\", at + 2);
  return at == std::string_view::npos ? at : at + 1;
}

// The place after the string or null that begins at `at`; npos: it is neither, or cut.
size_t after_name(std::string_view text, size_t at) {
  constexpr std::string_view kNull = "null";
  if (text.substr(at).starts_with('"')) return after_string(text, at);
  return text.substr(at).starts_with(kNull) ? at + kNull.size() : std::string_view::npos;
}

// Walks over a JSON text once, and copies it.
class Walk {
 public:
  Walk(std::string_view client, std::string_view text, std::string& out)
      : client_(client), text_(text), out_(out) {}

  void run() {
    size_t at = text_.find_first_of("\"{}[]");
    while (at < text_.size()) {
      const char c = text_[at];
      if (c == '"') {
        at = string_at(at);
      } else {
        depth_ += c == '{' || c == '[' ? 1 : -1;
        at += 1;
      }
      at = text_.find_first_of("\"{}[]", at);
    }
    out_ += text_.substr(copied_);
  }

 private:
  // A member's name, or a string among values. Returns the place after what is known of it.
  size_t string_at(size_t at) {
    const size_t end = std::min(after_string(text_, at), text_.size());
    const size_t colon = after_space(text_, end);
    if (colon >= text_.size() || text_[colon] != ':' || depth_ < 1 || depth_ > 2) return end;
    const std::string_view name = text_.substr(at, end - at);
    if (depth_ == 1) inside_ = name == "\"response\"" || name == "\"message\"";
    if (name != kModel || (depth_ == 2 && !inside_)) return end;
    const size_t value = after_space(text_, colon + 1);
    const size_t value_end = after_name(text_, value);
    if (value_end == std::string_view::npos) return value;
    out_ += text_.substr(copied_, value - copied_);
    append_json_string(out_, client_);
    copied_ = value_end;
    return value_end;
  }

  const std::string_view client_;
  const std::string_view text_;
  std::string& out_;
  size_t copied_ = 0;  // of text_
  int depth_ = 0;
  bool inside_ = false;  // the outermost object's last name was one of those that may hold a model
};

}  // namespace

void rename_model(std::string_view client, std::string& json) {
  if (json.find(kModel) == std::string::npos) return;
  std::string out;
  out.reserve(json.size() + client.size());
  Walk(client, json, out).run();
  json = std::move(out);
}

void rename_model_in_events(std::string_view client, std::string& events) {
  if (events.find(kModel) == std::string::npos) return;
  const std::string_view text = events;
  std::string out;
  out.reserve(text.size() + client.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", at), text.size() - 1) + 1;
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with("data:") && line.find(kModel) != std::string_view::npos) {
      Walk(client, line, out).run();
    } else {
      out += line;
    }
    at = end;
  }
  events = std::move(out);
}

}  // namespace troupe
