#pragma once

// OpenAI's Responses API, without a store: POST /v1/responses. What an answer refers to is in its request.
// Source: platform.openai.com/docs/api-reference/responses, and its streaming events.

#include <memory>
#include <string_view>

#include "common/dialects/dialect.h"

namespace troupe::dialect::responses {

ApiResult<TranslatedRequest> translate(std::string_view path, std::string_view body);
// The answer to a request that could not be translated.
std::unique_ptr<DialectAnswer> make_refusal();
// `echoed`: the request's own fields, as an answer repeats them.
std::unique_ptr<DialectAnswer> make_answer(bj::object echoed);

}  // namespace troupe::dialect::responses
