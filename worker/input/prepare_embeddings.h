#pragma once

// A body of POST /v1/embeddings → requests to the engine, one an input, that compute the prompt alone.

#include <string_view>
#include <vector>

#include "common/api/embeddings.h"
#include "worker/engine/engine.h"
#include "worker/input/served_model.h"

namespace troupe {

inline constexpr int64_t kEmbeddingTokensMax = 300'000;  // of a request's inputs together, as OpenAI's

struct PreparedEmbeddings {
  std::vector<EngineRequest> inputs;
  Pooling pooling = Pooling::kLast;
  bool base64 = false;
  int64_t token_count = 0;  // of all inputs
};

ApiResult<PreparedEmbeddings> prepare_embeddings(const ServedModel& model, std::string_view body);

}  // namespace troupe
