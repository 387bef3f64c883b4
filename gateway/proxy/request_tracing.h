#pragma once

// Filling of a request's record (telemetry/request_record.h), the source of the access log and of spans.

#include "common/net/http_server.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/request_context.h"
#include "gateway/upstream/forward.h"

namespace troupe {

// Adds the flow's attempt to the record: it is being sent.
void record_attempt(ProxyCore& core, const Exchange& exchange, RequestContext& context);
// REQUIRES: record_attempt().
void record_attempt_end(const ProxyCore& core, RequestContext& context, const ForwardResult& result);
// Makes the last try the worker's parent span. A tracestate is dropped where the client's own traceparent was
// none.
void record_headers(const RequestRecord& record, HeaderList& headers);
// The request ends: observers get its record.
void end_record(ProxyCore& core, const Exchange& exchange, RequestContext& context);

}  // namespace troupe
