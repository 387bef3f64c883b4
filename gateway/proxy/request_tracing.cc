#include "gateway/proxy/request_tracing.h"

#include <algorithm>

#include "common/net/task_group.h"

namespace troupe {

namespace {

constexpr int kClientGoneStatus = 499;  // nginx's number; HTTP has none. Also of a client that reads nothing

// The status of a request that ended without an answer.
int status_of(CancelReason reason) {
  if (reason == CancelReason::kClientGone || reason == CancelReason::kClientSlow) return kClientGoneStatus;
  return reason == CancelReason::kShutdown ? 503 : 500;
}

}  // namespace

void record_attempt(ProxyCore& core, const Exchange& exchange, RequestContext& context) {
  AttemptRecord& tried = context.record.tries.emplace_back();
  const route::Candidate& candidate = context.flow.attempt().candidate;
  tried.node = core.fleet.id(candidate.node);
  tried.branch = candidate.branch;
  tried.expect_cached = candidate.expect_cached;
  tried.resumes = exchange.head_sent();
  if (context.record.traced) tried.span = core.observers.new_span();
  tried.sent = core.clock.now();
}

void record_attempt_end(const ProxyCore& core, RequestContext& context, const ForwardResult& result) {
  AttemptRecord& tried = context.record.tries.back();
  tried.ended = core.clock.now();
  tried.status = result.status;
  tried.failed = result.end != ForwardResult::End::kAnswered;
  tried.failure = result.failure.kind;
  if (result.end == ForwardResult::End::kBroken) context.record.why = failure_name(result.failure.kind);
}

void record_headers(const RequestRecord& record, HeaderList& headers) {
  std::erase_if(headers, [&record](const auto& header) {
    return header.first == "traceparent" || (header.first == "tracestate" && record.parent_span == 0);
  });
  TraceContext trace_context = *record.trace;
  if (!record.tries.empty()) trace_context.span = record.tries.back().span;
  headers.emplace_back("traceparent", trace_context.header());
}

void end_record(ProxyCore& core, const Exchange& exchange, RequestContext& context) {
  if (!core.observers.any()) return;
  const HttpRequest& request = exchange.request();
  RequestRecord& record = context.record;
  const CancelReason reason = context.cancelled(exchange);
  if (reason != CancelReason::kNone) {
    record.end = RequestOutcome::kCancelled;
    record.why = cancel_reason_name(reason);
  }
  if (record.status == 0) record.status = status_of(reason);
  RequestFacts facts;
  facts.request_id = context.request_id;
  if (context.client != nullptr) facts.key = context.client->name();
  facts.method = request.method;
  facts.path = exchange.asked_path();
  facts.model = context.routed.model;
  facts.host = request.header("host");
  facts.user_agent = request.header("user-agent");
  facts.set = context.routed.key.set;
  facts.bytes_in = request.body.size();
  facts.bytes_out = exchange.bytes_sent();
  facts.stream = context.routed.stream;
  facts.ended = core.clock.now();
  core.observers.end(record, facts);
}

}  // namespace troupe
