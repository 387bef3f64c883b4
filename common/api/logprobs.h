#pragma once

// Writes a choice's `logprobs` as JSON, in the form of its kind of request. Private to common/api.

#include <string>
#include <vector>

#include "common/api/api.h"

namespace troupe {

void append_logprobs(std::string& out, GenerateRequest::Kind kind, const std::vector<TokenLogprob>& tokens);

}  // namespace troupe
