#pragma once

// Text in for POST /v1/prefixes: the body of a prefix → the tokens that every request which begins so shares,
// as the engine computes them ahead of the first.

#include <string_view>

#include "common/api/api.h"
#include "worker/engine/engine.h"
#include "worker/input/prefix_registry.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

struct PreparedPrefix {
  PrefixRegistry::Ask ask;
  EngineRequest engine;
};

// Tokens that would not be found again (too few of the last block) are left out. Errors: 400 (malformed, too
// long, too short to keep, refused by the template, prefix caching is off), 404 (another model's name).
ApiResult<PreparedPrefix> prepare_prefix(const ServedModel& model, std::string_view body,
                                         const RoutingHints& hints);

}  // namespace troupe
