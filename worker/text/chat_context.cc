#include "worker/text/chat_context.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/wide_json.h"
#include "worker/text/jinja/filters.h"

namespace troupe {
namespace {

StatusOr<bj::value> parse_part(const std::string& json, std::string_view what) {
  StatusOr<bj::value> value = parse_json_with_wide_integers(json);
  if (!value.ok()) return annotate(value.status(), what);
  return value;
}

// Why chat_template_kwargs may not have this name; empty: it may.
std::string_view refusal_of(std::string_view name, const bj::object& special_tokens) {
  constexpr std::array<std::string_view, 8> kTokens{
      "bos_token", "eos_token", "unk_token",  "sep_token",
      "pad_token", "cls_token", "mask_token", "additional_special_tokens"};
  jinja::Value ignored;
  if (name == "messages" || name == "tools") return "is the conversation's own; send it beside them";
  if (std::ranges::find(kTokens, name) != kTokens.end() || special_tokens.contains(name))
    return "is the model's own: its tokenizer says what it is";
  if (jinja::find_global(name, ignored)) return "is a function of every template";
  return {};
}

// Fields of the request that a template sees. Clients of vLLM, where the request's own value wins, repeat
// them here.
bool is_requests_own(std::string_view name) {
  return name == "add_generation_prompt" || name == "continue_final_message";
}

Status add_kwargs(const GenerateRequest& request, const bj::object& special_tokens, const TextMap& map,
                  bj::object& context) {
  TROUPE_ASSIGN_OR_RETURN(bj::value extra,
                          parse_part(request.chat_template_kwargs_json, "chat_template_kwargs"));
  if (!extra.is_object()) return invalid_argument("chat_template_kwargs: expected an object");
  for (const auto& entry : extra.get_object()) {
    const std::string_view name(entry.key().data(), entry.key().size());
    if (is_requests_own(name)) continue;
    if (const std::string_view why = refusal_of(name, special_tokens); !why.empty())
      return invalid_argument(absl::StrCat("chat_template_kwargs.", to_absl(name), ": ", to_absl(why)));
    bj::value& value = context[entry.key()] = entry.value();
    if (map) map_texts(value, map);
  }
  return absl::OkStatus();
}

// chat_template_kwargs may say otherwise. "none" is no thought at all, for templates that have no such word.
void add_effort(const GenerateRequest& request, const TextMap& map, bj::object& context) {
  bj::value& effort = context["reasoning_effort"] = bj::string(request.reasoning_effort);
  if (map) map_texts(effort, map);
  if (request.reasoning_effort == "none") context["enable_thinking"] = false;
}

}  // namespace

StatusOr<bj::object> chat_context(const GenerateRequest& request, const bj::object& special_tokens,
                                  bool add_generation_prompt, const TemplateTraits& traits,
                                  const TextMap& map) {
  bj::object context = special_tokens;
  TROUPE_ASSIGN_OR_RETURN(context["messages"], template_messages(request, traits, map));
  context["add_generation_prompt"] = add_generation_prompt;
  // Templates test for both "tools is defined" and "tools is not none". Transformers passes none.
  context["tools"] = nullptr;
  if (!request.tools_json.empty()) {
    TROUPE_ASSIGN_OR_RETURN(context["tools"], parse_part(request.tools_json, "tools"));
    if (map) map_texts(context["tools"], map);
  }
  context["documents"] = nullptr;
  if (!request.reasoning_effort.empty()) add_effort(request, map, context);
  if (!request.chat_template_kwargs_json.empty())
    TROUPE_RETURN_IF_ERROR(add_kwargs(request, special_tokens, map, context));
  if (!request.documents_json.empty()) {
    TROUPE_ASSIGN_OR_RETURN(context["documents"], parse_part(request.documents_json, "documents"));
    if (map) map_texts(context["documents"], map);
  }
  return context;
}

}  // namespace troupe
