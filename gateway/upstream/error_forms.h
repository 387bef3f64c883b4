#pragma once

// Errors for clients, in the form that the client's API has for them: those of the gateway, and those of a
// worker that has another form. Pure.

#include <cstddef>
#include <string>
#include <string_view>

#include "gateway/upstream/answer_content.h"

namespace troupe {

// The form of errors at a path: kMessages below /v1/messages, kResponses, else kOther: OpenAI's.
AnswerForm error_form(std::string_view path);

// `json`: {"error": …}, as ApiError::to_json() or an OpenAI-like server writes it. What is none, or has the
// form already, stays as it is.
std::string error_body(AnswerForm form, int status, std::string json);

// The event that ends a stream with that error. `events`: those with data that the client has; the Responses
// API numbers them.
std::string error_event_for(AnswerForm form, int status, std::string_view json, size_t events);

}  // namespace troupe
