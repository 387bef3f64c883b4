#pragma once

// The engine's side of /v1/conversations (common/api/conversations.h): lists the cached conversations, and
// prepares the computation of one that comes from another worker.

#include <string_view>
#include <vector>

#include "common/api/conversations.h"
#include "common/net/task.h"
#include "worker/engine/engine.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

// 429 when too many questions wait, 503 when the engine stops.
Task<ApiResult<std::vector<CachedConversation>>> list_conversations(Engine& engine, const std::string& model);
// 404 if none of it is cached.
Task<ApiResult<CachedConversation>> find_tail(Engine& engine, const std::string& model,
                                              std::string_view session);
// Errors: 400 (malformed, too long, unknown ids, prefix caching is off), 404 (another model's name).
ApiResult<EngineRequest> prepare_tail(const ServedModel& model, std::string_view body);

}  // namespace troupe
