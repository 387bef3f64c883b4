#pragma once

// The settings of the proxy: limits, time-outs and retries of requests.

#include <cstddef>

#include "common/core/time.h"
#include "common/net/cors.h"
#include "common/settings/schema.h"
#include "gateway/proxy/accounts.h"
#include "gateway/proxy/moderation_hook.h"
#include "gateway/proxy/request_parser.h"
#include "gateway/route/request/retry.h"
#include "gateway/route/request/stall.h"

namespace troupe {

struct ProxyOptions : RequestParserOptions, route::StallOptions {
  size_t requests_max = 4096;      // at once; more are answered 429
  size_t text_requests_max = 256;  // of them, at once, that ask for tokens only; more are answered 429
  route::RetryOptions retry;
  std::chrono::milliseconds sse_keepalive{0};       // see keepalive_exchange.h; 0: no comments
  Duration client_stall = std::chrono::seconds(5);  // see ForwardInput
  // A request that a worker of another kind may have begun is sent again to the next one, unless the client's
  // header says otherwise.
  bool resend_to_foreign = true;
  AccountOptions accounts;
  ModerationOptions moderation;
  CorsOrigins cors_origins;  // whose pages may change what is kept here (HttpServerOptions has the same)
};

// Describes the time-outs of requests and streams, sse_keepalive_ms, retry.*, limits.requests and
// .tokenize_requests. `options` must outlive the schema.
void describe(SettingsSchema& schema, ProxyOptions& options);

}  // namespace troupe
