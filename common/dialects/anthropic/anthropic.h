#pragma once

// Anthropic's Messages API: POST /v1/messages, POST /v1/messages/count_tokens.
// Source: docs.anthropic.com, "Messages" and "Streaming messages" (version 2023-06-01).

#include <memory>
#include <string_view>

#include "common/dialects/dialect.h"

namespace troupe::dialect::anthropic {

ApiResult<TranslatedRequest> translate_messages(std::string_view path, std::string_view body);
ApiResult<TranslatedRequest> translate_count(std::string_view path, std::string_view body);
std::unique_ptr<DialectAnswer> make_answer();

// As the Messages API calls the errors of a status.
std::string_view error_type(int status);

}  // namespace troupe::dialect::anthropic
