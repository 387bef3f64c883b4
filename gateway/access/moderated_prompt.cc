#include "gateway/access/moderated_prompt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

constexpr size_t kPromptBytesMax = size_t{64} << 10;

std::string field_at(const bj::object& fields, std::string_view name) {
  const bj::value* value = fields.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

void add_line(std::string_view line, std::string& text) {
  if (!line.empty())
    absl::StrAppend(&text, text.empty() ? "" : "\n", absl::string_view(line.data(), line.size()));
}

// Pictures and sounds are no texts, and the kinds of parts are the interface's words.
bool is_no_text(std::string_view name) {
  constexpr std::string_view kNames[] = {"type",  "role", "id",          "tool_call_id", "image_url",
                                         "image", "url",  "input_audio", "video_url",    "file_data"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void add_strings(const bj::value& value, std::string& text) {
  if (value.is_string()) add_line(value.get_string(), text);
  if (value.is_array())
    for (const bj::value& one : value.get_array()) add_strings(one, text);
  if (!value.is_object()) return;
  for (const auto& field : value.get_object())
    if (!is_no_text(field.key())) add_strings(field.value(), text);
}

bool has_token_ids(const bj::value& prompt) {
  if (!prompt.is_array()) return false;
  const bj::array& parts = prompt.get_array();
  return std::any_of(parts.begin(), parts.end(), [](const bj::value& part) {
    return part.is_number() || (part.is_array() && has_token_ids(part));
  });
}

void add_persona(const bj::value& persona, std::string& text) {
  if (!persona.is_object()) return;  // a name
  for (const auto& field : persona.get_object())
    if (field.key() != "name" && field.key() != "version") add_strings(field.value(), text);
}

}  // namespace

ModeratedPrompt whole_prompt(std::string_view body) {
  ModeratedPrompt prompt;
  const auto value = parse_json(body);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  if (fields == nullptr) return prompt;
  // (A schema's names are read by the model like its descriptions.)
  for (const char* name : {"tools", "functions", "response_format", "chat_template_kwargs"})
    if (const bj::value* field = fields->if_contains(name)) add_line(to_json(*field), prompt.text);
  if (const bj::value* persona = fields->if_contains("persona")) add_persona(*persona, prompt.text);
  for (const char* name : {"chat_template", "documents", "instructions", "system", "queries", "query",
                           "prompt", "suffix", "input", "messages", "assistant_prefill"})
    if (const bj::value* field = fields->if_contains(name)) add_strings(*field, prompt.text);
  for (const char* name : {"prompt", "input"})
    if (const bj::value* field = fields->if_contains(name))
      prompt.token_ids = prompt.token_ids || has_token_ids(*field);
  prompt.token_ids = prompt.token_ids || fields->contains("prompt_token_ids");
  if (prompt.text.size() <= kPromptBytesMax) return prompt;
  size_t begin = prompt.text.size() - kPromptBytesMax;
  while ((static_cast<unsigned char>(prompt.text[begin]) & 0xc0U) == 0x80) ++begin;
  prompt.text.erase(0, begin);
  return prompt;
}

namespace {

// A text, or the texts of parts.
std::string text_of_content(const bj::value& content) {
  if (content.is_string()) return std::string(content.get_string());
  std::string text;
  if (!content.is_array()) return text;
  for (const bj::value& part : content.get_array()) {
    if (part.is_string())
      absl::StrAppend(&text, text.empty() ? "" : "\n", to_absl(std::string_view(part.get_string())));
    if (!part.is_object()) continue;
    const std::string own = part.get_object().contains("content")
                                ? text_of_content(part.get_object().at("content"))
                                : field_at(part.get_object(), "text");
    if (!own.empty()) absl::StrAppend(&text, text.empty() ? "" : "\n", own);
  }
  return text;
}

}  // namespace

std::string text_of_prompt(std::string_view body) {
  const auto value = parse_json(body);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  if (fields == nullptr) return {};
  const bj::value* messages = fields->if_contains("messages");
  if (messages == nullptr || !messages->is_array()) {
    for (const char* name : {"prompt", "input", "query"})
      if (const bj::value* text = fields->if_contains(name)) return text_of_content(*text);
    return {};
  }
  std::string text;
  bool answered = false;
  for (const bj::value& message : messages->get_array()) {
    if (!message.is_object()) continue;
    // (The last one may be the beginning of the answer that is asked for.)
    answered = answered || field_at(message.get_object(), "role") == "assistant";
    if (field_at(message.get_object(), "role") == "assistant") continue;
    const bj::value* content = message.get_object().if_contains("content");
    const std::string own = content == nullptr ? std::string() : text_of_content(*content);
    if (own.empty()) continue;
    if (std::exchange(answered, false)) text.clear();
    absl::StrAppend(&text, text.empty() ? "" : "\n", own);
  }
  return text;
}

}  // namespace troupe
