#pragma once

// A request's samplers as the engine takes them: texts become tokens, defaults are settled, and what is
// neutral is left out, so that a plain request's draws stay plain.

#include <optional>

#include "common/api/api.h"
#include "worker/engine/engine.h"
#include "worker/input/dry_breakers.h"
#include "worker/model/config.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// Parts of the served model that samplers need.
struct SamplerModel {
  const Tokenizer& tokenizer;
  const ModelConfig& config;
  DryBreakerCache* breaker_cache = nullptr;  // null: none
};

// Fills in the request's history and chain. REQUIRES: engine.sampling has its other parameters already;
// engine.stop_token_ids and ignore_eos are settled. Errors: 400 that name the field.
std::optional<ApiError> take_samplers(const SamplerModel& model, const SamplerFields& fields,
                                      EngineRequest& engine);

// The chain that the fields come to; none where their draw is the one of the plain parameters.
std::optional<SamplerChain> chain_of(const SamplerFields& fields, const SamplingParams& sampling);

}  // namespace troupe
