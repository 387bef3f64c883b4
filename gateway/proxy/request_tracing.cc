// What a request leaves behind on its way, for the access log and for its spans. Called only where somebody
// is told of it.

#include <algorithm>

#include "common/net/task_group.h"
#include "gateway/proxy/proxy.h"
#include "gateway/telemetry/request_observers.h"

namespace troupe {

namespace {

constexpr int kClientGoneStatus = 499;  // as nginx has it: no answer that HTTP knows

// Of a request that ended without an answer.
int status_of(CancelReason reason) {
  if (reason == CancelReason::kClientGone) return kClientGoneStatus;
  return reason == CancelReason::kShutdown ? 503 : 500;
}

}  // namespace

void Proxy::trail_try(const Exchange& exchange, Flight& flight) {
  TrailTry& tried = flight.trail->tries.emplace_back();
  tried.node = fleet_.id(flight.chosen->node);
  tried.branch = flight.chosen->branch;
  tried.expect_cached = flight.chosen->expect_cached;
  tried.resumes = exchange.head_sent();
  if (flight.trail->traced) tried.span = trails_->new_span();
  tried.sent = clock_.now();
}

// The worker's parent is the try; where the client's own was no good, what it says of vendors is none either.
void Proxy::trail_headers(const RequestTrail& trail, HeaderList& headers) {
  std::erase_if(headers, [&trail](const auto& header) {
    return header.first == "traceparent" || (header.first == "tracestate" && trail.parent_span == 0);
  });
  TraceContext context = *trail.trace;
  if (!trail.tries.empty()) context.span = trail.tries.back().span;
  headers.emplace_back("traceparent", context.header());
}

void Proxy::trail_try_ended(Flight& flight, const ForwardResult& result) {
  TrailTry& tried = flight.trail->tries.back();
  tried.ended = clock_.now();
  tried.status = result.status;
  tried.failed = result.end != ForwardResult::End::kAnswered;
  tried.failure = result.failure.kind;
  if (result.end == ForwardResult::End::kBroken) flight.trail->why = failure_name(result.failure.kind);
}

void Proxy::end_trail(const Exchange& exchange, const Flight& flight) {
  const HttpRequest& request = exchange.request();
  RequestTrail& trail = *flight.trail;
  const CancelReason reason = exchange.cancel_reason();
  if (reason != CancelReason::kNone) {
    trail.end = TrailEnd::kCancelled;
    trail.why = cancel_reason_name(reason);
  }
  if (trail.status == 0) trail.status = status_of(reason);
  RequestFacts facts;
  facts.request_id = flight.request_id;
  if (flight.client != nullptr) facts.key = flight.client->name();
  facts.method = request.method;
  facts.path = request.path;
  facts.model = flight.routed.model;
  facts.host = request.header("host");
  facts.user_agent = request.header("user-agent");
  facts.set = flight.routed.key.set;
  facts.bytes_in = request.body.size();
  facts.bytes_out = exchange.bytes_sent();
  facts.stream = flight.routed.stream;
  facts.ended = clock_.now();
  trails_->end(trail, facts);
}

}  // namespace troupe
