#pragma once

// A chat request as the variables of a template.

#include "common/api/api.h"
#include "common/core/status.h"
#include "common/json/json.h"
#include "worker/text/chat_messages.h"

namespace troupe {

// Builds the context of a chat request: messages, tools, documents, add_generation_prompt,
// bos_token/eos_token/… of the tokenizer (`special_tokens`), and chat_template_kwargs. These are refused
// where they would replace messages, tools, a special token or a function of templates, and
// add_generation_prompt and continue_final_message among them are ignored, as is `documents` beside the
// request's own: the request's own win. `map` is applied to all texts of the request in them.
StatusOr<bj::object> chat_context(const GenerateRequest& request, const bj::object& special_tokens,
                                  bool add_generation_prompt = true, const TemplateTraits& traits = {},
                                  const TextMap& map = {});

}  // namespace troupe
