// Parses one element of `messages` → ChatMessage: the role, the content in its three shapes (text, null, text
// parts), and, as text, every other field that the chat template may read.

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

constexpr std::pair<std::string_view, Role> kRoles[] = {
    {"system", Role::kSystem}, {"developer", Role::kDeveloper},
    {"user", Role::kUser},     {"assistant", Role::kAssistant},
    {"tool", Role::kTool},     {"function", Role::kTool}};  // its older name

std::string message_path(size_t index, std::string_view key) {
  return absl::StrCat("messages[", index, "].", to_absl(key));
}

std::string part_path(size_t index, size_t part, std::string_view key) {
  return absl::StrCat("messages[", index, "].content[", part, "]", to_absl(key));
}

Fault read_role(size_t index, dom::element value, Role& role) {
  if (value.is_string()) {
    const std::string_view name = value.get_string().value_unsafe();
    for (const auto& [known, known_role] : kRoles) {
      if (name != known) continue;
      role = known_role;
      return std::nullopt;
    }
  }
  return expected(message_path(index, "role"), "one of system, developer, user, assistant, tool", value);
}

// Parts that are text, and the field that holds it: those of OpenAI's APIs and of thoughts, as vLLM takes
// them.
constexpr std::pair<std::string_view, std::string_view> kTextParts[] = {{"text", "text"},
                                                                        {"input_text", "text"},
                                                                        {"output_text", "text"},
                                                                        {"refusal", "refusal"},
                                                                        {"thinking", "thinking"}};

// Empty: a part of that type is no text.
std::string_view text_field_of(std::string_view type) {
  for (const auto& [known, field] : kTextParts) {
    if (known == type) return field;
  }
  return {};
}

// REQUIRES: is_text(text).
void append_text_part(size_t part, dom::element text, ChatMessage& message) {
  if (part > 0) message.content += '\n';
  message.content += text.get_string().value_unsafe();
  message.part_bytes.push_back(text.get_string().value_unsafe().size());
}

// Appends one element of a content list: {"type": "text", "text": …}, or its text alone.
Fault append_part(size_t index, size_t part, dom::element value, bool for_others, ChatMessage& message) {
  if (is_text(value)) {
    append_text_part(part, value, message);
    return std::nullopt;
  }
  if (!value.is_object()) return expected(part_path(index, part, ""), "an object with type and text", value);
  const dom::object fields = value.get_object().value_unsafe();
  dom::element type, text;
  if (fields.at_key("type").get(type)) return missing(part_path(index, part, ".type"), "\"text\"");
  if (!is_text(type)) return expected(part_path(index, part, ".type"), "\"text\"", type);
  const std::string_view field = text_field_of(type.get_string().value_unsafe());
  if (field.empty() && for_others) {
    // An image counts as its JSON, of which the key needs no more than that equal ones are equal.
    const size_t begin = message.content.size();
    if (part > 0) message.content += '\n';
    append_element_json(message.content, value);
    message.part_bytes.push_back(message.content.size() - begin - (part > 0 ? 1 : 0));
    return std::nullopt;
  }
  if (field.empty()) {
    return ApiError::unsupported(
        part_path(index, part, ".type"),
        absl::StrCat("'", part_path(index, part, ".type"), "' must be \"text\"; content parts of type '",
                     clip_text(type.get_string().value_unsafe()), "' are not supported."));
  }
  const auto path = [&] { return part_path(index, part, absl::StrCat(".", to_absl(field))); };
  if (fields.at_key(field).get(text)) return missing(path(), "a string");
  if (!is_text(text)) return expected(path(), "a string", text);
  append_text_part(part, text, message);
  return std::nullopt;
}

Fault read_content(size_t index, dom::element value, bool for_others, ChatMessage& message) {
  if (is_text(value)) {
    message.content = value.get_string().value_unsafe();
    return std::nullopt;
  }
  if (!value.is_array()) {
    return expected(message_path(index, "content"), "a string or a list of text parts", value);
  }
  const dom::array parts = value.get_array().value_unsafe();
  if (parts.size() == 0) {
    return ApiError::bad_field(
        message_path(index, "content"),
        absl::StrCat("'", message_path(index, "content"), "' must hold at least one part."));
  }
  size_t part = 0;
  for (const dom::element item : parts) {
    if (auto fault = append_part(index, part++, item, for_others, message)) return fault;
  }
  if (message.part_bytes.size() == 1) message.part_bytes.clear();
  return std::nullopt;
}

// Appends a field that templates read besides role and content; known ones must have their type.
Fault append_extra(size_t index, std::string_view key, dom::element value, std::string& extra_json) {
  const bool wants_text =
      key == "name" || key == "tool_call_id" || key == "reasoning_content" || key == "refusal";
  if (wants_text && !is_text(value)) return expected(message_path(index, key), "a string", value);
  if (key == "tool_calls" && !value.is_array()) return expected(message_path(index, key), "an array", value);
  extra_json += extra_json.empty() ? '{' : ',';
  append_json_string(extra_json, key);
  extra_json += ':';
  append_element_json(extra_json, value);
  return std::nullopt;
}

}  // namespace

std::string_view role_name(Role role) {
  for (const auto& [name, known] : kRoles) {
    if (known == role) return name;
  }
  return "unknown";
}

Fault read_message(size_t index, dom::element value, bool for_others, ChatMessage& message) {
  if (!value.is_object()) {
    return expected(absl::StrCat("messages[", index, "]"), "an object with role and content", value);
  }
  const dom::object fields = value.get_object().value_unsafe();
  bool has_role = false, has_content = false;
  for (const auto field : fields) {
    if (field.value.is_null()) continue;
    Fault fault;
    if (field.key == "role") {
      fault = read_role(index, field.value, message.role);
      has_role = true;
    } else if (field.key == "content") {
      fault = read_content(index, field.value, for_others, message);
      has_content = true;
    } else if (field.key == "prefix") {
      fault = read_bool(message_path(index, "prefix"), field.value, message.prefix);
    } else {
      fault = append_extra(index, field.key, field.value, message.extra_json);
    }
    if (fault && for_others && field.key != "content") fault.reset();  // an older role, a field of theirs
    if (fault) return fault;
  }
  if (!message.extra_json.empty()) message.extra_json += '}';
  if (!has_role)
    return missing(message_path(index, "role"), "one of system, developer, user, assistant, tool");
  if (!has_content && message.role != Role::kAssistant && !for_others) {
    return missing(message_path(index, "content"), "a string or a list of text parts");
  }
  return std::nullopt;
}

Fault read_messages(std::string_view param, dom::element value, const ApiLimits& limits,
                    std::vector<ChatMessage>& out) {
  if (!value.is_array()) return expected(param, "an array of messages", value);
  const dom::array items = value.get_array().value_unsafe();
  const size_t count = items.size();
  if (count == 0) return ApiError::bad_field(param, "'messages' must hold at least one message.");
  if (count > limits.messages_max) {
    return ApiError::bad_field(param, absl::StrCat("'messages' must hold at most ", limits.messages_max,
                                                   " messages, not ", count, "."));
  }
  out.resize(count);
  size_t index = 0;
  for (const dom::element item : items) {
    if (auto fault = read_message(index, item, limits.for_others, out[index])) return fault;
    ++index;
  }
  return std::nullopt;
}

}  // namespace troupe
