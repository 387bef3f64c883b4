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

namespace {

double ms_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// A stream's counts come without those of thoughts from a worker of ours, unless the client asked for usage.
SpentTokens spent_of(const RequestContext& context) {
  SpentTokens spent = context.account.spent;
  if (!spent.counted || spent.reasoning > 0) return spent;
  if (const auto counts = context.worker.passed.counts()) spent.reasoning = counts->reasoning_tokens;
  return spent;
}

void export_usage(ProxyCore& core, const HttpRequest& request, const RequestContext& context) {
  const RequestRecord& record = context.record;
  const RoutedRequest& routed = context.routed;
  const std::string set = routed.key.set.is_zero() ? std::string() : routed.key.set.hex();
  UsageRecord usage;
  usage.request_id = context.request_id;
  if (context.client != nullptr) {
    usage.key = context.client->name();
    usage.tenant = context.client->tenant();
  }
  usage.end_user = context.account.end_user;
  usage.path = request.path;
  usage.model = routed.asked_model.empty() ? routed.model : routed.asked_model;
  if (!routed.asked_model.empty()) usage.arm = routed.model;
  usage.set = set;
  if (!record.tries.empty()) usage.node = record.tries.back().node;
  usage.end = outcome_name(record.end);
  usage.why = record.why;
  usage.finish = context.worker.passed.finish_reason();
  if (context.account.cut_short) usage.finish = "content_filter";
  usage.verdict = context.account.verdict;
  usage.stream = routed.stream;
  usage.status = record.status;
  usage.attempts = static_cast<int64_t>(record.tries.size());
  usage.tokens = spent_of(context);
  if (record.first_byte != TimePoint{}) usage.ttft_ms = ms_between(record.started, record.first_byte);
  usage.duration_ms = ms_between(record.started, core.clock.now());
  core.usage->add(usage);
}

}  // namespace

void end_record(ProxyCore& core, const Exchange& exchange, RequestContext& context) {
  const bool exports = core.usage != nullptr && context.account.asks_model;
  if (!core.observers.any() && !exports) return;
  const HttpRequest& request = exchange.request();
  RequestRecord& record = context.record;
  const CancelReason reason = context.cancelled(exchange);
  if (reason != CancelReason::kNone) {
    record.end = RequestOutcome::kCancelled;
    record.why = cancel_reason_name(reason);
  }
  if (record.status == 0) record.status = status_of(reason);
  if (exports) export_usage(core, request, context);
  if (!core.observers.any()) return;
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
