#pragma once

// The negative prompt of a request with guidance (worker/model/guidance.h).

#include <optional>
#include <vector>

#include "common/api/api.h"
#include "worker/input/served_model.h"
#include "worker/model/guidance.h"

namespace troupe {

// Nothing: the request asks for none. The request's negative_prompt is all of a completion's; of a chat it
// takes the place of the system's messages at the beginning, and the others stay. Without one it is the last
// token of `prompt`, as Transformers does. `known`: that of a list's first prompt, which the others share.
// Errors name negative_prompt. REQUIRES: prompt not empty
ApiResult<std::optional<Guidance>> prepare_guidance(const ServedModel& model, const GenerateRequest& request,
                                                    const std::vector<TokenId>& prompt,
                                                    std::optional<Guidance> known = std::nullopt);

}  // namespace troupe
