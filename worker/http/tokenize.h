#pragma once

// POST /tokenize and /detokenize: the text stages of a request without the engine. Pure functions like those
// of prompt_pipeline.h, and the same encoding: the count they return is the count a request is charged.

#include <string>
#include <string_view>

#include "common/api/error.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

// Returns the answer's body. Errors: 400 (malformed, too long to fit the model, refused by the template, an
// id outside the vocabulary), 404 (another model's name), 413.
ApiResult<std::string> answer_tokenize(const ServedModel& model, std::string_view body);
ApiResult<std::string> answer_detokenize(const ServedModel& model, std::string_view body);

}  // namespace troupe
