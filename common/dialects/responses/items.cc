#include "common/dialects/responses/items.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace troupe::dialect::responses {
namespace {

bool is_text_part(std::string_view type) {
  return type == "input_text" || type == "output_text" || type == "text" || type == "refusal";
}

// A text, or parts of text, as a chat's content.
Fault read_content(const std::string& path, const bj::value& content, bj::value& out) {
  if (content.is_string()) {
    out = content;
    return std::nullopt;
  }
  if (!content.is_array()) return wrong(path, "a string or a list of parts");
  bj::array parts;
  for (size_t i = 0; i < content.get_array().size(); ++i) {
    const std::string at = path_of(path, i);
    const bj::object* part = content.get_array()[i].if_object();
    if (part == nullptr) return wrong(at, "an object with a type");
    const std::string_view type = text_member(*part, "type");
    if (type.empty()) return required(at + ".type", "\"input_text\" or \"output_text\"");
    if (!is_text_part(type)) return unsupported(at + ".type", "parts must be texts");
    const bj::value* text = part->if_contains(type == "refusal" ? "refusal" : "text");
    if (text == nullptr || !text->is_string()) return wrong(at + ".text", "a string");
    parts.push_back(bj::object{{"type", "text"}, {"text", text->get_string()}});
  }
  if (parts.empty()) {
    out = "";
  } else if (parts.size() == 1) {
    out = parts.front().get_object().at("text");
  } else {
    out = std::move(parts);
  }
  return std::nullopt;
}

void add_texts(const bj::object& item, std::string_view list, std::string& out) {
  const bj::array* parts = array_member(item, list);
  if (parts == nullptr) return;
  for (const bj::value& part : *parts)
    if (part.is_object()) out += text_member(part.get_object(), "text");
}

}  // namespace

Fault ItemReader::read(const bj::value& input, std::string_view instructions) {
  if (!instructions.empty())
    push("instructions", {{"role", "system"}, {"content", bj::string_view(instructions)}});
  if (input.is_string()) {
    push("input", {{"role", "user"}, {"content", input.get_string()}});
    return std::nullopt;
  }
  if (!input.is_array() || input.get_array().empty())
    return wrong("input", "a string or a list of items, not empty");
  for (size_t i = 0; i < input.get_array().size(); ++i)
    if (auto fault = read_item(path_of("input", i), input.get_array()[i])) return fault;
  return std::nullopt;
}

Fault ItemReader::read_item(const std::string& path, const bj::value& item) {
  const bj::object* fields = item.if_object();
  if (fields == nullptr) return wrong(path, "an object");
  const std::string_view type = text_member(*fields, "type");
  if (type == "message" || (type.empty() && fields->contains("role"))) return read_message(path, *fields);
  if (type == "function_call") return read_call(path, *fields);
  if (type == "function_call_output") return read_output(path, *fields);
  if (type == "reasoning") {
    read_reasoning(*fields);
    return std::nullopt;
  }
  if (type == "item_reference" || type.empty())
    return unsupported(path, "nothing is kept here: send the conversation so far, whole, in 'input'");
  return unsupported(path + ".type",
                     "items are of type message, reasoning, function_call and function_call_output");
}

Fault ItemReader::read_message(const std::string& path, const bj::object& item) {
  const std::string_view role = text_member(item, "role");
  if (role != "user" && role != "assistant" && role != "system" && role != "developer")
    return wrong(path + ".role", "\"user\", \"assistant\", \"system\" or \"developer\"");
  const bj::value* content = item.if_contains("content");
  if (content == nullptr) return required(path + ".content", "a string or a list of parts");
  bj::value text;
  if (auto fault = read_content(path + ".content", *content, text)) return fault;
  if (role == "assistant") {
    in_turn_ = false;
    turn(path)["content"] = std::move(text);
  } else {
    push(path, {{"role", bj::string_view(role)}, {"content", std::move(text)}});
  }
  return std::nullopt;
}

Fault ItemReader::read_call(const std::string& path, const bj::object& item) {
  const std::string_view id = text_member(item, "call_id"), name = text_member(item, "name");
  const bj::value* arguments = item.if_contains("arguments");
  if (id.empty()) return required(path + ".call_id", "a string");
  if (name.empty()) return required(path + ".name", "the name of a function");
  if (arguments == nullptr || !arguments->is_string()) return wrong(path + ".arguments", "a string");
  bj::object& message = turn(path);
  bj::value& calls = message["tool_calls"];
  if (!calls.is_array()) calls = bj::array();
  bj::object function{{"name", bj::string_view(name)}, {"arguments", *arguments}};
  calls.get_array().push_back(
      bj::object{{"id", bj::string_view(id)}, {"type", "function"}, {"function", std::move(function)}});
  return std::nullopt;
}

Fault ItemReader::read_output(const std::string& path, const bj::object& item) {
  const std::string_view id = text_member(item, "call_id");
  const bj::value* output = item.if_contains("output");
  if (id.empty()) return required(path + ".call_id", "a string");
  if (output == nullptr) return required(path + ".output", "a string or a list of parts");
  bj::value text;
  if (auto fault = read_content(path + ".output", *output, text)) return fault;
  push(path, {{"role", "tool"}, {"tool_call_id", bj::string_view(id)}, {"content", std::move(text)}});
  return std::nullopt;
}

// Thoughts that only their maker can read (encrypted_content alone) say nothing to this model.
void ItemReader::read_reasoning(const bj::object& item) {
  in_turn_ = false;
  const size_t before = reasoning_.size();
  add_texts(item, "content", reasoning_);
  if (reasoning_.size() == before) add_texts(item, "summary", reasoning_);
}

void ItemReader::push(std::string_view path, bj::object message) {
  in_turn_ = false;
  reasoning_.clear();
  renames_.emplace_back(path_of("messages", messages_.size()), path);
  messages_.push_back(std::move(message));
}

bj::object& ItemReader::turn(std::string_view path) {
  if (in_turn_) return messages_.back().get_object();
  std::string reasoning = std::exchange(reasoning_, {});
  push(path, {{"role", "assistant"}});
  in_turn_ = true;
  bj::object& message = messages_.back().get_object();
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  return message;
}

}  // namespace troupe::dialect::responses
