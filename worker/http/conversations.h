#pragma once

// What /v1/conversations needs of the engine (common/api/conversations.h): which conversations are cached,
// and what is to be computed of one that comes from elsewhere.

#include <string_view>
#include <vector>

#include "common/api/conversations.h"
#include "common/net/task.h"
#include "worker/engine/engine.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

// 429 where too many ask, 503 where the engine stops.
Task<ApiResult<std::vector<CachedConversation>>> list_conversations(Engine& engine, const std::string& model);
// 404 where nothing of it is cached.
Task<ApiResult<CachedConversation>> find_tail(Engine& engine, const std::string& model,
                                              std::string_view session);
// Errors: 400 (malformed, too long, ids that are not the model's, prefix caching is off), 404 (another
// model's name).
ApiResult<EngineRequest> prepare_tail(const ServedModel& model, std::string_view body);

}  // namespace troupe
