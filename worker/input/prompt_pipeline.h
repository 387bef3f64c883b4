#pragma once

// First stage of a request: a body's bytes → the engine's input. It parses, renders the chat template,
// encodes, and settles every default and limit. Pure functions of their arguments, so the server can run them
// on a thread of their own (a long prompt takes tens of milliseconds) and tests need none.

#include <cstdint>
#include <string_view>

#include "common/api/api.h"
#include "worker/input/encode_chat.h"
#include "worker/input/encode_text.h"
#include "worker/input/prepared_request.h"
#include "worker/input/served_model.h"

namespace troupe {

// `random_seed` applies if the request has no seed. Errors: 400 (malformed, impossible, too long, refused by
// the template), 404 (another model's name).
ApiResult<PreparedRequest> prepare_request(const ServedModel& model, GenerateRequest::Kind kind,
                                           std::string_view body, uint64_t random_seed,
                                           const RoutingHints& hints = {});
// The same for a parsed request.
ApiResult<PreparedRequest> prepare_parsed(const ServedModel& model, GenerateRequest request,
                                          uint64_t random_seed, RoutingHints hints = {});

}  // namespace troupe
