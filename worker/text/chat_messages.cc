#include "worker/text/chat_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/wide_integers.h"
#include "common/json/wide_json.h"

namespace troupe {
namespace {

bj::string_view view(std::string_view text) {
  return {text.data(), text.size()};
}
std::string_view view(const bj::string& text) {
  return {text.data(), text.size()};
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// A value's JSON with its integers of any size.
std::string json_text(const bj::value& value) {
  const std::string json = to_json(value);
  const std::string marked = '"' + std::string(wide_integer_mark());
  std::string text;
  size_t done = 0;
  for (size_t at = json.find(marked); at != std::string::npos; at = json.find(marked, done)) {
    const size_t end = json.find('"', at + 1);
    text.append(json, done, at - done);
    text += wide_integer_of(std::string_view(json).substr(at + 1, end - at - 1));
    done = end + 1;
  }
  return text.append(json, done);
}

// `call.function.arguments`, as the template takes them. A call of another shape stays as it is.
Status set_arguments(bj::value& call, const TemplateTraits& traits, const std::string& where) {
  bj::object* object = call.if_object();
  bj::value* function = object == nullptr ? nullptr : object->if_contains("function");
  bj::object* named = function == nullptr ? nullptr : function->if_object();
  bj::value* arguments = named == nullptr ? nullptr : named->if_contains("arguments");
  if (arguments == nullptr) return {};
  if (traits.arguments_are_text) {
    if (!arguments->is_string()) *arguments = bj::string(json_text(*arguments));
    if (is_blank(view(arguments->get_string()))) *arguments = bj::string("{}");
    return {};
  }
  if (!arguments->is_string()) return {};
  const std::string text(arguments->get_string().data(), arguments->get_string().size());
  if (is_blank(text)) {
    *arguments = bj::object();
    return {};
  }
  StatusOr<bj::value> parsed = parse_json_with_wide_integers(text);
  if (!parsed.ok())
    return invalid_argument(
        absl::StrCat(where, ".function.arguments: must be JSON: ", parsed.status().message()));
  *arguments = *std::move(parsed);
  return {};
}

bj::object with_mapped_keys(bj::object fields, const TextMap& map) {
  bj::object renamed;
  for (auto& field : fields) {
    const std::string_view key(field.key().data(), field.key().size());
    renamed[view(map(key).value_or(std::string(key)))] = std::move(field.value());
  }
  return renamed;
}

Status add_extra(bj::object& object, const std::string& extra_json, const TemplateTraits& traits,
                 const std::string& where) {
  StatusOr<bj::value> extra = parse_json_with_wide_integers(extra_json);
  if (!extra.ok()) return annotate(extra.status(), where);
  if (!extra->is_object()) return invalid_argument(where + ": the extra fields are not an object");
  for (auto& entry : extra->get_object()) {
    bj::array* calls = entry.key() == "tool_calls" ? entry.value().if_array() : nullptr;
    if (calls != nullptr && calls->empty()) continue;
    for (size_t i = 0; calls != nullptr && i < calls->size(); ++i)
      TROUPE_RETURN_IF_ERROR(set_arguments((*calls)[i], traits, absl::StrCat(where, ".tool_calls[", i, "]")));
    object[entry.key()] = std::move(entry.value());
  }
  // Answers have it under both names; templates read the older one.
  const bj::value* reasoning = object.if_contains("reasoning");
  if (reasoning != nullptr && reasoning->is_string() && !object.contains("reasoning_content")) {
    bj::value copy = *reasoning;
    object["reasoning_content"] = std::move(copy);
  }
  return {};
}

bj::value part_of(std::string_view text) {
  bj::object part;
  part["type"] = "text";
  part["text"] = view(text);
  return part;
}

bj::value content_of(const ChatMessage& message, const TemplateTraits& traits) {
  if (!traits.wants_parts) return bj::string(view(message.content));
  bj::array parts;
  std::string_view rest = message.content;
  for (const size_t bytes : message.part_bytes) {
    parts.push_back(part_of(rest.substr(0, bytes)));
    rest.remove_prefix(std::min(bytes + 1, rest.size()));  // and the line break that joins it to the next
  }
  if (parts.empty()) parts.push_back(part_of(rest));
  return parts;
}

// Messages that are one turn stand apart as paragraphs.
bj::value content_of(const std::vector<ChatMessage>& messages, const TemplateTurn& turn,
                     const TemplateTraits& traits) {
  if (turn.messages.size() == 1) return content_of(messages[turn.messages.front()], traits);
  ChatMessage joined;
  for (const size_t i : turn.messages) {
    if (!joined.content.empty() && !messages[i].content.empty()) joined.content += "\n\n";
    joined.content += messages[i].content;
  }
  return content_of(joined, traits);
}

}  // namespace

void map_texts(bj::value& value, const TextMap& map) {
  if (bj::string* text = value.if_string()) {
    if (const auto mapped = map({text->data(), text->size()})) *text = view(*mapped);
  } else if (bj::array* items = value.if_array()) {
    for (bj::value& item : *items) map_texts(item, map);
  } else if (bj::object* fields = value.if_object()) {
    bool renames = false;
    for (auto& field : *fields) {
      map_texts(field.value(), map);
      renames |= map({field.key().data(), field.key().size()}).has_value();
    }
    if (renames) *fields = with_mapped_keys(std::move(*fields), map);
  }
}

StatusOr<bj::array> template_messages(const GenerateRequest& request, const TemplateTraits& traits,
                                      const TextMap& map) {
  bj::array messages;
  for (const TemplateTurn& turn : template_turns(request.messages, traits)) {
    bj::object object;
    object["role"] = view(role_name(turn.role));
    object["content"] = content_of(request.messages, turn, traits);
    const size_t own = turn.own_message.value_or(request.messages.size());
    if (own < request.messages.size() && request.messages[own].prefix) object["prefix"] = true;
    if (own < request.messages.size() && !request.messages[own].extra_json.empty())
      TROUPE_RETURN_IF_ERROR(
          add_extra(object, request.messages[own].extra_json, traits, absl::StrCat("messages[", own, "]")));
    bj::value& value = messages.emplace_back(std::move(object));
    if (!map) continue;
    map_texts(value, map);
    value.get_object()["role"] = view(role_name(turn.role));  // a word of ours, which templates compare
  }
  return messages;
}

}  // namespace troupe
