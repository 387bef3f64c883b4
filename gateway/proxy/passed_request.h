#pragma once

// Requests that the gateway need not understand: embeddings, rerank, responses, messages, audio and the like,
// which servers of other kinds answer. They are routed by model, session and load, to such workers alone (but
// embeddings, which ours answer, too, and which are routed by their texts as well), and passed on as they
// came. A body is JSON, or a form (multipart/form-data) with a field `model`.

#include <string>
#include <string_view>

#include "gateway/proxy/request_parser.h"

namespace troupe {

// Reads no more than routing needs: the other fields are the worker's to judge. The error: JSON that is none,
// or a form without an end.
ApiResult<RoutedRequest> parse_passed(const HttpRequest& request, const RequestParserInput& input);

// `body` with this name of the model, in JSON or in the form that its content type says. One that names none
// stays as it is.
std::string with_model(std::string_view body, std::string_view content_type, const std::string& model);

}  // namespace troupe
