#pragma once

// A chat request as the variables of a template.

#include "common/api/api.h"
#include "common/core/status.h"
#include "common/json/json.h"
#include "worker/text/chat_messages.h"

namespace troupe {

// Builds the context of a chat request: messages, tools, add_generation_prompt, bos_token/eos_token/… of
// the tokenizer (`special_tokens`), chat_template_kwargs on top, which replace neither messages nor
// tools. `map` is applied to all texts of the request in them.
StatusOr<bj::object> chat_context(const GenerateRequest& request, const bj::object& special_tokens,
                                  bool add_generation_prompt = true, const TemplateTraits& traits = {},
                                  const TextMap& map = {});

}  // namespace troupe
