#pragma once

// Which headers cross the gateway, in each direction.

#include <string>
#include <string_view>

#include "common/net/http_server.h"
#include "gateway/route/key/prefix_key.h"

namespace troupe {

// The client's headers as a worker gets them: all but those of this hop (RFC 9110 §7.6.1, and what
// `Connection` names), those the gateway itself sets (x-request-id, x-request-timeout-ms, and every
// x-troupe-*: a client does not speak for the gateway), `expect` and `accept-encoding` (answers are read in
// passing).
HeaderList headers_for_worker(const HttpRequest& request);

// What a worker needs to know to tell what it holds (x-troupe-set, -session), and how much of the prompt is
// the set's: in messages, or in bytes of a plain prompt.
// `planned`: the worker is among the set's homes, so its prefix is to be evicted last (x-troupe-planned). The
// mark goes with the request because that costs nothing, needs no connection of its own and no agreement
// among gateways, and a server of another kind passes over it: each use says it anew, a use without it takes
// it back, and a set that has moved, of which nobody says anything any more, grows old (prefix_cache.h).
void append_hints(const route::PrefixKey& key, bool planned, HeaderList& headers);

// The worker's headers as the client gets them, `own` first: without this hop's, Content-Length, x-troupe-*
// and those that `own` sets.
HeaderList headers_for_client(const HeaderList& answer, HeaderList own);

}  // namespace troupe
