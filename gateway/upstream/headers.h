#pragma once

// Which headers cross the gateway, in each direction.

#include <string>
#include <string_view>

#include "common/net/http_server.h"
#include "gateway/route/prefix_key.h"

namespace troupe {

// The client's headers as a worker gets them: all but those of this hop (RFC 9110 §7.6.1, and what
// `Connection` names), those the gateway itself sets (x-request-id, x-request-timeout-ms, and every
// x-troupe-*: a client does not speak for the gateway), `expect` and `accept-encoding` (answers are read in
// passing).
HeaderList headers_for_worker(const HttpRequest& request);

// What a worker needs to know to tell what it holds (x-troupe-set, -session), and how much of the prompt is
// the set's: in messages, or in bytes of a plain prompt.
void append_hints(const route::PrefixKey& key, HeaderList& headers);

// The worker's headers as the client gets them, `own` first: without this hop's, Content-Length, x-troupe-*
// and those that `own` sets.
HeaderList headers_for_client(const HeaderList& answer, HeaderList own);

}  // namespace troupe
