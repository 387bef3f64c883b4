#pragma once

// The headers that cross the gateway, in each direction.

#include <string>
#include <string_view>

#include "common/core/time.h"
#include "common/net/http_server.h"
#include "gateway/route/key/prefix_key.h"

namespace troupe {

// The client's headers for a worker: all but those of this hop (RFC 9110 §7.6.1, and those named by
// `Connection`), those the gateway itself sets (x-request-id, x-request-timeout-ms, and every x-troupe-*: a
// client does not speak for the gateway), `expect` and `accept-encoding` (the gateway reads answers in
// passing), those by which a browser names the page that asks (`origin`, `referer`, `sec-fetch-*`: the
// gateway has judged them), and the client's secrets, which are for this gateway alone: `cookie`,
// `x-api-key`, `api-key`. (Of `authorization` see RequestDriver::worker_headers().)
HeaderList headers_for_worker(const HttpRequest& request);

// Adds what a worker needs to report what it holds (x-troupe-set, -session), and how much of the prompt is
// the set's: in messages, or in bytes of a plain prompt. `planned`: the worker is among the set's homes, so
// its prefix is to be evicted last (x-troupe-planned). The mark goes with the request because that costs
// nothing, needs no connection of its own and no agreement among gateways, and a server of another kind
// ignores it: each use renews it, a use without it takes it back, and a set that has moved, which no request
// marks any more, ages out (prefix_cache.h).
void append_hints(const route::PrefixKey& key, bool planned, HeaderList& headers);

// The worker's headers for the client, `own` first: without this hop's, Content-Length, x-troupe-*, those
// that `own` sets, and those that act on a browser for all of its server (cookies, cross-origin permissions,
// Alt-Svc, Clear-Site-Data, HSTS, Refresh and the like), which this gateway is, and not the worker.
HeaderList headers_for_client(const HeaderList& answer, HeaderList own);

// When a worker's answer asks for a pause: its retry-after-ms (Azure, OpenAI), else its Retry-After; zero:
// neither, or none that can be read.
Duration asked_pause(const HeaderList& answer);

// Retry-After's value, seconds or an HTTP date, as a time from now, a day at most; zero: neither. `date`: the
// answer's Date header, from which the time to a date is measured, for two machines' clocks differ; empty:
// this machine's clock. A date that is not ahead counts as a second.
Duration retry_after_of(std::string_view text, std::string_view date = {});

}  // namespace troupe
