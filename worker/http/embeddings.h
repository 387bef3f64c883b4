#pragma once

// POST /v1/embeddings: computes the inputs, a few at a time, and makes the answer.

#include <string>

#include "common/net/task.h"
#include "worker/engine/engine.h"
#include "worker/input/prepare_embeddings.h"

namespace troupe {

// On `executor`'s thread. `engine` and `model`, the name in the answer, must outlive the coroutine, which
// frees in the engine what is left however it ends. Errors: as the engine's; 501 where the device computes
// nothing.
Task<ApiResult<std::string>> compute_embeddings(Executor executor, Engine& engine, const std::string& model,
                                                PreparedEmbeddings prepared, Deadline deadline);

}  // namespace troupe
