// What resuming a stream needs of the sockets' side: the ids of all that the client has, and the words it
// gets where no worker can go on. Which worker goes on is the flow's to decide
// (route/request/request_flow.h).

#include <algorithm>

#include "common/api/sse.h"
#include "gateway/proxy/proxy.h"
#include "gateway/proxy/proxy_scopes.h"

namespace troupe {

using route::FailureKind;

namespace {

std::string_view what_failed(FailureKind kind) {
  return kind == FailureKind::kSilent ? "the worker fell silent before the answer was complete"
                                      : "the worker broke off before the answer was complete";
}

ApiError broken_error(const route::Failure& failure, int tried) {
  if (failure.kind == FailureKind::kDeadline || failure.http_status == 504)
    return ApiError::deadline("the request's time was over before its answer was complete");
  std::string message(what_failed(failure.kind));
  if (tried > 1) message += ", and no other could go on";
  return ApiError::unavailable(message + "; ask again");
}

}  // namespace

// Ours are asked to tell what another needs to go on; a worker that goes on is told it.
void Proxy::ask_ids(const Exchange& exchange, RequestContext& context, ForwardInput& input) {
  context.ours = fleet_.ours(context.flow.attempt().candidate.node);
  context.asks_ids = context.routed.stream && context.routed.generates && context.ours;
  if (!context.asks_ids) return;
  if (!context.tap) context.tap.emplace(context.routed.choices == 1);
  context.tap->next_worker(exchange.head_sent());
  if (exchange.head_sent()) {
    context.resume_body = context.tap->resume_body(body_for_worker(exchange.request(), context));
    input.request.body = context.resume_body;
  }
  input.request.headers.emplace_back("x-troupe-ids", "1");
  input.tap = &*context.tap;
}

// The answer's first byte, or the first of a worker that goes on with it.
void Proxy::began(RequestContext& context) {
  const TimePoint now = clock_.now();
  context.flow.first_byte(flow_context(), context.asks_ids && context.tap->heartbeats(), now);
  if (context.request_record != nullptr) context.request_record->began(now);
  if (context.paused_at != TimePoint{}) {
    const Duration pause = now - std::exchange(context.paused_at, TimePoint{});
    instruments_.resumed.Increment();
    if (context.request_record != nullptr) context.request_record->resumes += 1;
    instruments_.resume_pause.Observe(std::chrono::duration<double>(pause).count());
    log_.info("stream_resumed", {{"request", context.request_id},
                                 {"worker", fleet_.id(context.flow.attempt().candidate.node)},
                                 {"attempt", context.flow.attempts()},
                                 {"tokens", context.tap->ids_told()},
                                 {"pause_ms", std::chrono::duration<double, std::milli>(pause).count()}});
    return;
  }
  if (context.entry != nullptr) context.entry->first_byte();
  if (context.routed.generates)
    instruments_.ttfb.Observe(std::chrono::duration<double>(now - context.started).count());
}

// Whether the request may be sent again where this attempt's worker fails before the client has something.
bool Proxy::may_resend(const RequestContext& context) const {
  if (context.resend == Resend::kAsConfigured) return context.ours || options_.resend_to_foreign;
  return context.resend == Resend::kAlways;
}

route::AnswerProgress Proxy::progress(const Exchange& exchange, const RequestContext& context) const {
  route::AnswerProgress progress;
  progress.started = exchange.head_sent();
  if (context.tap) {
    progress.resumable = context.tap->resumable();
    progress.tokens = static_cast<int64_t>(context.tap->ids_told());
  }
  progress.remaining = context.deadline.remaining(clock_.now());
  progress.resend = may_resend(context);
  return progress;
}

// Nothing has come from the worker for patience() (see forward_input()).
bool Proxy::gives_up(const Exchange& exchange, RequestContext& context) {
  route::RequestFlow::SilentFacts facts;
  facts.stream = context.routed.stream;
  facts.heartbeats_asked = context.asks_ids;
  facts.heartbeats_seen = context.asks_ids && context.tap->heartbeats();
  facts.bytes = context.passed.bytes();
  const uint64_t refused = retry_budget_.refused();
  const bool given_up = context.flow.silent(flow_context(), facts, progress(exchange, context), clock_.now());
  if (retry_budget_.refused() != refused) instruments_.retries_refused.Increment();
  return given_up;
}

void Proxy::log_failure(const RequestContext& context, const ForwardResult& result) const {
  log_.debug("try_failed", {{"request", context.request_id},
                            {"worker", fleet_.id(context.flow.attempt().candidate.node)},
                            {"attempt", context.flow.attempts()},
                            {"failure", failure_name(result.failure.kind)},
                            {"status", result.status},
                            {"error", to_std(result.error.message())}});
}

// The client has some of the stream: tell it in the stream's own language, and end without [DONE].
Task<void> Proxy::end_broken(Exchange& exchange, RequestContext& context, ForwardResult& result) {
  count_answer(context, 200, RequestOutcome::kBroken);
  if (context.request_record != nullptr) context.request_record->why = failure_name(result.failure.kind);
  instruments_.broken_streams.Increment();
  if (context.tap && context.tap->resumable()) instruments_.not_resumed.Increment();
  if (context.entry != nullptr) context.entry->outcome.status = kBrokenStatus;
  // The worker that began may have said itself what went wrong.
  const bool said = context.flow.attempts() == 1 && result.held && !result.held_body.empty();
  std::string event;
  append_sse_data(event,
                  said ? result.held_body : broken_error(result.failure, context.flow.attempts()).to_json());
  exchange.close_after();
  context.phases.pause(clock_.now());
  co_await exchange.write(event);
  co_await exchange.finish();
}

}  // namespace troupe
