#pragma once

// Requests of the gateway's own to a worker, whose answers it reads itself.

#include "gateway/upstream/forward_types.h"

namespace troupe {

// A request whose answer the gateway itself reads: the answer is held whatever it is; its status is in
// `failure` unless it is 2xx (kAnswered).
Task<ForwardResult> ask_once(HttpClient& client, const ClientRequest& request, Deadline deadline,
                             size_t bytes_max = kHeldBodyMax);

}  // namespace troupe
