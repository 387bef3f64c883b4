#pragma once

// Text in for POST /v1/prefixes: a prefix's body → the tokens shared by every request that begins with it,
// which the engine computes before the first of them.

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

// Leaves out tokens that no look-up would find (a partial last block). Errors: 400 (malformed, too long, too
// short to keep, refused by the template, prefix caching is off), 404 (another model's name).
ApiResult<PreparedPrefix> prepare_prefix(const ServedModel& model, std::string_view body,
                                         const RoutingHints& hints);

}  // namespace troupe
