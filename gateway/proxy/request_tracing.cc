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

void Proxy::record_attempt(const Exchange& exchange, RequestContext& context) {
  AttemptRecord& tried = context.request_record->tries.emplace_back();
  const route::Candidate& candidate = context.flow.attempt().candidate;
  tried.node = fleet_.id(candidate.node);
  tried.branch = candidate.branch;
  tried.expect_cached = candidate.expect_cached;
  tried.resumes = exchange.head_sent();
  if (context.request_record->traced) tried.span = observers_->new_span();
  tried.sent = clock_.now();
}

// The worker's parent is the try; where the client's own was no good, what it says of vendors is none either.
void Proxy::record_headers(const RequestRecord& request_record, HeaderList& headers) {
  std::erase_if(headers, [&request_record](const auto& header) {
    return header.first == "traceparent" || (header.first == "tracestate" && request_record.parent_span == 0);
  });
  TraceContext trace_context = *request_record.trace;
  if (!request_record.tries.empty()) trace_context.span = request_record.tries.back().span;
  headers.emplace_back("traceparent", trace_context.header());
}

void Proxy::record_attempt_end(RequestContext& context, const ForwardResult& result) {
  AttemptRecord& tried = context.request_record->tries.back();
  tried.ended = clock_.now();
  tried.status = result.status;
  tried.failed = result.end != ForwardResult::End::kAnswered;
  tried.failure = result.failure.kind;
  if (result.end == ForwardResult::End::kBroken)
    context.request_record->why = failure_name(result.failure.kind);
}

void Proxy::end_record(const Exchange& exchange, const RequestContext& context) {
  const HttpRequest& request = exchange.request();
  RequestRecord& request_record = *context.request_record;
  const CancelReason reason = exchange.cancel_reason();
  if (reason != CancelReason::kNone) {
    request_record.end = RequestOutcome::kCancelled;
    request_record.why = cancel_reason_name(reason);
  }
  if (request_record.status == 0) request_record.status = status_of(reason);
  RequestFacts facts;
  facts.request_id = context.request_id;
  if (context.client != nullptr) facts.key = context.client->name();
  facts.method = request.method;
  facts.path = request.path;
  facts.model = context.routed.model;
  facts.host = request.header("host");
  facts.user_agent = request.header("user-agent");
  facts.set = context.routed.key.set;
  facts.bytes_in = request.body.size();
  facts.bytes_out = exchange.bytes_sent();
  facts.stream = context.routed.stream;
  facts.ended = clock_.now();
  observers_->end(request_record, facts);
}

}  // namespace troupe
