#pragma once

// vLLM's structural tags: text that is free until a trigger, and has a form from there on. Both ways to write
// them: {structures: [{begin, schema, end}], triggers}, and XGrammar's {format: {type, …}}.

#include <string_view>

#include "common/core/status.h"
#include "common/grammar/front/format.h"
#include "worker/input/mark_speller.h"

namespace troupe {

// Errors (kInvalidArgument) name the member.
StatusOr<grammar::Format> format_of_structural_tag(std::string_view json, MarkSpeller& speller);

}  // namespace troupe
