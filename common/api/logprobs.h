#pragma once

// The `logprobs` of a choice as JSON, in the form of its kind of request. Private to api_*.cc.

#include <string>
#include <vector>

#include "common/api/api.h"

namespace troupe {

void append_logprobs(std::string& out, GenerateRequest::Kind kind, const std::vector<TokenLogprob>& tokens);

}  // namespace troupe
