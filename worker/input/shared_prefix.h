#pragma once

// How many leading tokens of a prompt are the set's: a gateway says it in messages (or bytes of a plain
// prompt), because it does not tokenise; residency and prefix lengths are told in tokens. A hint changes
// nothing of the answer, so what makes no sense counts as none.

#include <cstdint>
#include <vector>

#include "common/api/api.h"
#include "common/core/block_hash.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

// Tokens of `prompt`, the request's, that would be the same whatever came after the shared part. Costs a
// render and an encoding of that part, most of which the token cache knows.
int32_t shared_prefix_count(const ServedModel& model, const GenerateRequest& request,
                            const std::vector<TokenId>& prompt, const RoutingHints& hints);

// Of a request that will go on: the leading tokens that are the same however it does. Costs two renders and
// encodings of a chat, four encodings of a text. Errors as prepare_request's.
ApiResult<std::vector<TokenId>> common_beginning(const ServedModel& model, const GenerateRequest& beginning);

}  // namespace troupe
