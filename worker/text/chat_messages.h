#pragma once

// The step from an API's messages to what a chat template sees, as vLLM and Transformers take it: templates
// are written for mappings where the API has JSON text, for the roles that their model knows, and some for
// content in parts.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/api/api.h"
#include "common/core/status.h"
#include "common/json/json.h"
#include "worker/text/template_roles.h"

namespace troupe {

// Applied to every text that a request brings, before the template sees it; may be empty. nullopt: the text
// stays.
using TextMap = std::function<std::optional<std::string>(std::string_view)>;
// Applies `map` to the strings of a value, keys included: those that templates look up it leaves alone.
void map_texts(bj::value& value, const TextMap& map);

// `messages` of a template's context, in roles that it knows (template_roles.h). Of the other fields of a
// message an empty `tool_calls` is none, and a call's arguments become the mapping that their JSON text is
// ("": an empty one), or its text where the template takes text. `prefix` is there where it is true. Errors
// name the field.
StatusOr<bj::array> template_messages(const GenerateRequest& request, const TemplateTraits& traits,
                                      const TextMap& map = {});

}  // namespace troupe
