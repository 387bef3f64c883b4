#pragma once

// Questions of front ends to tabbyAPI, text-generation-webui and llama.cpp's server besides OpenAI's paths:
// tokens of a text and back, what model there is, and llama.cpp's own /completion. Sources: tabbyAPI's
// endpoints/core, text-generation-webui's extensions/openai, llama.cpp's tools/server/README.

#include <memory>
#include <string_view>

#include "common/dialects/dialect.h"

namespace troupe::dialect::probes {

// {"text", "add_bos_token"} → {"tokens", "length"}: /v1/token/encode, /v1/internal/encode, …/token-count.
ApiResult<TranslatedRequest> translate_encode(std::string_view path, std::string_view body);
// vLLM's /tokenize, as it comes: /v1/tokenize.
ApiResult<TranslatedRequest> translate_tokenize(std::string_view path, std::string_view body);
// {"tokens"} → {"text"}: /v1/token/decode, /v1/internal/decode.
ApiResult<TranslatedRequest> translate_decode(std::string_view path, std::string_view body);
// /props, /v1/model, /v1/model/list, /v1/internal/model/info, /v1/auth/permission.
ApiResult<TranslatedRequest> translate_question(std::string_view path, std::string_view body);
ApiResult<TranslatedRequest> translate_completion(std::string_view path, std::string_view body);
std::unique_ptr<DialectAnswer> make_refusal();

}  // namespace troupe::dialect::probes
