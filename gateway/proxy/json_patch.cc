#include "gateway/proxy/json_patch.h"

#include <algorithm>

#include "common/json/json.h"

namespace troupe {

namespace {

constexpr std::string_view kSpace = " \t\r\n";

// All of these take a place in well-formed JSON and give the one after what stands there.
size_t after_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

size_t after_string(std::string_view text, size_t at) {
  at = text.find_first_of("\"\\", at + 1);
  while (at != std::string_view::npos && text[at] == '\\') at = text.find_first_of("\"\\", at + 2);
  return at == std::string_view::npos ? text.size() : at + 1;
}

size_t after_value(std::string_view text, size_t at) {
  size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return at;
    if (c == '"') {
      at = after_string(text, at);
      continue;
    }
    if (c == '{' || c == '[') depth += 1;
    if (c == '}' || c == ']') depth -= 1;
    at += 1;
  }
  return at;
}

bool names(std::string_view quoted, std::span<const JsonPatch> members) {
  std::string spelt(quoted.substr(1, quoted.size() - 2));
  if (spelt.find('\\') != std::string::npos) {
    const auto value = parse_json(quoted);
    if (value.ok() && value->is_string()) spelt = std::string(std::string_view(value->as_string()));
  }
  return std::any_of(members.begin(), members.end(), [&](const JsonPatch& m) { return m.name == spelt; });
}

}  // namespace

std::string with_members(std::string_view body, std::span<const JsonPatch> members) {
  std::string out = "{";
  out.reserve(body.size() + 160 * members.size());
  size_t at = after_space(body, after_space(body, 0) + 1);
  while (at < body.size() && body[at] == '"') {
    const size_t name_end = after_string(body, at);
    const size_t value = after_space(body, after_space(body, name_end) + 1);
    const size_t end = after_value(body, value);
    if (!names(body.substr(at, name_end - at), members)) {
      if (out.size() > 1) out += ',';
      out += body.substr(at, end - at);
    }
    at = after_space(body, std::min(end + 1, body.size()));
  }
  for (const JsonPatch& member : members) {
    if (member.takes_away) continue;
    if (out.size() > 1) out += ',';
    out += '"';
    out += member.name;
    out += "\":";
    out += member.json;
  }
  out += '}';
  return out;
}

std::vector<std::string_view> array_items(std::string_view body, std::string_view name) {
  const JsonPatch wanted[] = {{name, ""}};
  std::vector<std::string_view> items;
  size_t at = after_space(body, after_space(body, 0) + 1);
  while (at < body.size() && body[at] == '"') {
    const size_t name_end = after_string(body, at);
    const size_t value = after_space(body, after_space(body, name_end) + 1);
    if (names(body.substr(at, name_end - at), wanted) && value < body.size() && body[value] == '[') {
      for (size_t item = after_space(body, value + 1); item < body.size() && body[item] != ']';) {
        const size_t end = after_value(body, item);
        const std::string_view text = body.substr(item, end - item);
        items.push_back(text.substr(0, text.find_last_not_of(kSpace) + 1));
        item = end < body.size() && body[end] == ',' ? after_space(body, end + 1) : end;
      }
      return items;
    }
    at = after_space(body, std::min(after_value(body, value) + 1, body.size()));
  }
  return items;
}

}  // namespace troupe
