#pragma once

// KoboldAI's API as koboldcpp has it: POST /api/v1/generate and what its front ends ask besides.
// Source: koboldcpp.py and its API documentation (lite.koboldai.net/koboldcpp_api).

#include <cstdint>
#include <memory>
#include <string_view>

#include "common/dialects/dialect.h"

namespace troupe::dialect::kobold {

// Tokens of an answer where a request says none, which /api/v1/config/max_length tells.
inline constexpr int64_t kAnswerTokens = 512;

ApiResult<TranslatedRequest> translate_generate(std::string_view path, std::string_view body);
ApiResult<TranslatedRequest> translate_stream(std::string_view path, std::string_view body);
ApiResult<TranslatedRequest> translate_count(std::string_view path, std::string_view body);
// /api/extra/generate/check and /api/extra/abort: of the generation that `genkey` names.
ApiResult<TranslatedRequest> translate_control(std::string_view path, std::string_view body);
// GETs: of the model and its limits, of versions, of what it does (/api/extra/perf).
ApiResult<TranslatedRequest> translate_question(std::string_view path, std::string_view body);
std::unique_ptr<DialectAnswer> make_refusal();

}  // namespace troupe::dialect::kobold
