#include "worker/text/chat_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/wide_json.h"

namespace troupe {
namespace {

StatusOr<bj::value> parse_part(const std::string& json, std::string_view what) {
  StatusOr<bj::value> value = parse_json_with_wide_integers(json);
  if (!value.ok()) return annotate(value.status(), what);
  return value;
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
  if (!request.chat_template_kwargs_json.empty()) {
    TROUPE_ASSIGN_OR_RETURN(bj::value extra,
                            parse_part(request.chat_template_kwargs_json, "chat_template_kwargs"));
    if (!extra.is_object()) return invalid_argument("chat_template_kwargs: expected an object");
    for (const auto& entry : extra.get_object()) {
      if (entry.key() == "messages" || entry.key() == "tools")
        return invalid_argument(absl::StrCat("chat_template_kwargs.",
                                             to_absl({entry.key().data(), entry.key().size()}),
                                             ": is the conversation's own; send it beside them"));
      bj::value& value = context[entry.key()] = entry.value();
      if (map) map_texts(value, map);
    }
  }
  return context;
}

}  // namespace troupe
