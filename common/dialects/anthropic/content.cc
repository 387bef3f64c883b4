#include "common/dialects/anthropic/content.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace troupe::dialect::anthropic {
namespace {

// One message, while its blocks are read.
struct Draft {
  bj::array parts;  // of text
  bj::array calls;
  std::string reasoning;
};

// An empty text says nothing; a template may refuse it.
Fault add_text(std::string_view path, const bj::object& block, std::string_view field, Draft& draft) {
  const bj::value* text = block.if_contains(field);
  const std::string name = absl::StrCat(to_absl(path), ".", to_absl(field));
  if (text == nullptr || !text->is_string()) return wrong(name, "a string");
  draft.parts.push_back(bj::object{{"type", "text"}, {"text", text->get_string()}});
  return std::nullopt;
}

Fault add_call(std::string_view path, const bj::object& block, Draft& draft) {
  const std::string_view id = text_member(block, "id"), name = text_member(block, "name");
  const bj::object* input = object_member(block, "input");
  if (id.empty()) return wrong(absl::StrCat(to_absl(path), ".id"), "a string, not empty");
  if (name.empty()) return wrong(absl::StrCat(to_absl(path), ".name"), "the name of a tool");
  if (input == nullptr) return wrong(absl::StrCat(to_absl(path), ".input"), "an object");
  bj::object function{{"name", bj::string_view(name)}, {"arguments", arguments_json(*input)}};
  draft.calls.push_back(
      bj::object{{"id", bj::string_view(id)}, {"type", "function"}, {"function", std::move(function)}});
  return std::nullopt;
}

Fault refuse_block(std::string_view path, std::string_view type) {
  return ApiError::unsupported(absl::StrCat(to_absl(path), ".type"),
                               absl::StrCat("'", to_absl(path), ".type' is '", to_absl(type.substr(0, 64)),
                                            "', a kind of content that is not supported here."));
}

// A block's type; a fault where it has none.
Fault read_type(std::string_view path, const bj::value& block, std::string_view& type) {
  if (!block.is_object()) return wrong(path, "an object with a type");
  type = text_member(block.get_object(), "type");
  if (type.empty()) return required(absl::StrCat(to_absl(path), ".type"), "the kind of content");
  return std::nullopt;
}

// Content that is text alone: of the system's message, and of a call's result.
Fault read_texts(std::string_view path, const bj::value& content, Draft& draft) {
  if (content.is_string()) {
    draft.parts.push_back(bj::object{{"type", "text"}, {"text", content.get_string()}});
    return std::nullopt;
  }
  if (!content.is_array()) return wrong(path, "a string or a list of text blocks");
  size_t index = 0;
  for (const bj::value& block : content.get_array()) {
    const std::string at = path_of(path, index++);
    std::string_view type;
    if (auto fault = read_type(at, block, type)) return fault;
    if (type != "text") return refuse_block(at, type);
    if (auto fault = add_text(at, block.get_object(), "text", draft)) return fault;
  }
  return std::nullopt;
}

// One part is a plain text.
bj::value content_of(bj::array parts) {
  if (parts.empty()) return "";
  if (parts.size() == 1) return parts.front().get_object().at("text");
  return parts;
}

void push(Conversation& out, std::string_view path, bj::object message) {
  out.renames.emplace_back(path_of("messages", out.messages.size()), path);
  out.messages.push_back(std::move(message));
}

Fault add_result(std::string_view path, const bj::object& block, Conversation& out) {
  const std::string_view id = text_member(block, "tool_use_id");
  if (id.empty()) return required(absl::StrCat(to_absl(path), ".tool_use_id"), "the id of a tool_use block");
  Draft draft;
  const bj::value* content = block.if_contains("content");
  if (content != nullptr && !content->is_null())
    if (auto fault = read_texts(absl::StrCat(to_absl(path), ".content"), *content, draft)) return fault;
  push(out, path,
       bj::object{{"role", "tool"},
                  {"tool_call_id", bj::string_view(id)},
                  {"content", content_of(std::move(draft.parts))}});
  return std::nullopt;
}

Fault add_user_block(std::string_view path, const bj::value& block, Draft& draft, Conversation& out) {
  std::string_view type;
  if (auto fault = read_type(path, block, type)) return fault;
  if (type == "text") return add_text(path, block.get_object(), "text", draft);
  if (type == "tool_result") return add_result(path, block.get_object(), out);
  return refuse_block(path, type);
}

Fault add_assistant_block(std::string_view path, const bj::value& block, Draft& draft) {
  std::string_view type;
  if (auto fault = read_type(path, block, type)) return fault;
  const bj::object& fields = block.get_object();
  if (type == "text") return add_text(path, fields, "text", draft);
  if (type == "tool_use") return add_call(path, fields, draft);
  if (type == "redacted_thinking") return std::nullopt;  // encrypted for its maker
  if (type != "thinking") return refuse_block(path, type);
  const bj::value* thinking = fields.if_contains("thinking");
  if (thinking == nullptr || !thinking->is_string())
    return wrong(absl::StrCat(to_absl(path), ".thinking"), "a string");
  draft.reasoning += std::string_view(thinking->get_string());
  return std::nullopt;
}

void push_user(std::string_view path, std::string_view role, bool has_results, Draft draft,
               Conversation& out) {
  if (draft.parts.empty() && has_results) return;
  push(out, path,
       bj::object{{"role", bj::string_view(role)}, {"content", content_of(std::move(draft.parts))}});
}

void push_assistant(std::string_view path, Draft draft, Conversation& out) {
  bj::object message{{"role", "assistant"}};
  out.goes_on = draft.calls.empty() && !draft.parts.empty();
  if (!draft.parts.empty() || draft.calls.empty()) message["content"] = content_of(std::move(draft.parts));
  if (!draft.reasoning.empty()) message["reasoning_content"] = draft.reasoning;
  if (!draft.calls.empty()) message["tool_calls"] = std::move(draft.calls);
  push(out, path, std::move(message));
}

}  // namespace

Fault add_system(std::string_view path, const bj::value& system, Conversation& out) {
  Draft draft;
  if (auto fault = read_texts(path, system, draft)) return fault;
  if (!draft.parts.empty())
    push(out, path, bj::object{{"role", "system"}, {"content", content_of(std::move(draft.parts))}});
  return std::nullopt;
}

Fault add_message(size_t index, const bj::value& message, Conversation& out) {
  const std::string path = path_of("messages", index);
  if (!message.is_object()) return wrong(path, "an object with role and content");
  const bj::object& fields = message.get_object();
  const std::string_view role = text_member(fields, "role");
  const bool assistant = role == "assistant";
  if (!assistant && role != "user" && role != "system")
    return wrong(path + ".role", "\"user\" or \"assistant\"");
  const bj::value* content = fields.if_contains("content");
  if (content == nullptr) return required(path + ".content", "a string or a list of blocks");
  Draft draft;
  const size_t before = out.messages.size();
  if (content->is_string()) {
    draft.parts.push_back(bj::object{{"type", "text"}, {"text", content->get_string()}});
  } else if (content->is_array()) {
    size_t block_index = 0;
    for (const bj::value& block : content->get_array()) {
      const std::string at = path_of(path + ".content", block_index++);
      auto fault = assistant ? add_assistant_block(at, block, draft) : add_user_block(at, block, draft, out);
      if (fault) return fault;
    }
  } else {
    return wrong(path + ".content", "a string or a list of blocks");
  }
  out.goes_on = false;
  if (assistant) {
    push_assistant(path, std::move(draft), out);
  } else {
    push_user(path, role, out.messages.size() > before, std::move(draft), out);
  }
  return std::nullopt;
}

}  // namespace troupe::dialect::anthropic
