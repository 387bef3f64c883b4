#pragma once

// Counts the leading tokens of a prompt that belong to the set. A gateway sends the length in messages (or
// bytes of a plain prompt), because it does not tokenise; residency and prefix lengths are reported in
// tokens. A hint never changes the answer, so an invalid one is ignored.

#include <cstdint>
#include <vector>

#include "common/api/api.h"
#include "common/core/block_hash.h"
#include "worker/input/prepared_request.h"
#include "worker/input/served_model.h"

namespace troupe {

// Tokens of the request's `prompt` that stay the same whatever follows the shared part. Costs a render and an
// encoding of that part, most of which the token cache holds.
int32_t shared_prefix_count(const ServedModel& model, const GenerateRequest& request,
                            const std::vector<TokenId>& prompt, const RoutingHints& hints);

// Leading tokens that stay the same however the request continues. Costs two renders and encodings of a chat,
// four encodings of a text. Errors as prepare_request's.
ApiResult<std::vector<TokenId>> common_beginning(const ServedModel& model, const GenerateRequest& beginning);

}  // namespace troupe
