#pragma once

// POST /tokenize and /detokenize: the text stages of a request without the engine behind them. Pure functions
// like prompt_pipeline.h's, whose encoding they use: what is counted here is what a request is charged.

#include <string>
#include <string_view>

#include "common/api/error.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

// The answer's body. Errors: 400 (malformed, too long to fit the model, refused by the template, an id
// outside the vocabulary), 404 (another model's name), 413.
ApiResult<std::string> answer_tokenize(const ServedModel& model, std::string_view body);
ApiResult<std::string> answer_detokenize(const ServedModel& model, std::string_view body);

}  // namespace troupe
