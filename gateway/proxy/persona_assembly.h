#pragma once

// A parsed chat that names a persona: its card, notes and lore are put around the messages, and the request
// is keyed as one whose card is known to be shared (persona/prompt_parts.h has the order). The client's own
// messages go to the worker as they were written.

#include <string>

#include "common/api/api.h"
#include "common/net/http_message.h"
#include "gateway/access/api_keys.h"
#include "gateway/persona/registry.h"
#include "gateway/route/key/prefix_key.h"

namespace troupe {

// A persona that was put around a chat's messages.
struct AssembledPersona {
  std::string label;  // "name@version"
  std::string name;
  std::string messages_json;  // of the whole prompt, for the worker
  route::PrefixKey key;
};

struct PersonaAssemblyInput {
  const HttpRequest& request;
  PersonaRegistry* personas;  // null: there are none
  const ApiClient* client;    // null: the gateway has no keys
};

// Replaces the messages of `parsed`. REQUIRES: its persona_json is not empty; model and salt are settled.
// Errors: 404 of an unknown persona or version, 400.
ApiResult<AssembledPersona> assemble_persona(const PersonaAssemblyInput& input, GenerateRequest& parsed);

}  // namespace troupe
