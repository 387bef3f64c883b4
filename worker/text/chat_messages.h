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

namespace troupe {

// Its template takes these as they come (ChatTemplate finds out).
struct TemplateTraits {
  bool knows_developer = false;  // else role `developer` is its older name, `system`
  bool wants_parts = false;      // it goes through content as a list of {"type": "text", "text": …}
};

// Applied to every text of a message before the template sees it; may be empty. nullopt: the text stays.
using TextMap = std::function<std::optional<std::string>(std::string_view)>;

// `messages` of a template's context. Of the other fields of a message an empty `tool_calls` is none, and a
// call's arguments become the mapping that their JSON text is ("": an empty one). Errors name the field.
StatusOr<bj::array> template_messages(const GenerateRequest& request, const TemplateTraits& traits,
                                      const TextMap& map = {});

}  // namespace troupe
