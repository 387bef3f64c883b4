// A worker that fails while it answers: who goes on, and what the client is told where nobody can.
//
// Until the first byte has gone out, the request is simply sent to the next candidate. After it the stream is
// gone on with: the next worker gets the request and the ids of all that the client has, and the same
// generator at the same place. Who that is, is decided anew: the order of minutes ago knows nothing of what
// has happened since. Nobody is asked twice.

#include <algorithm>

#include "common/api/sse.h"
#include "gateway/proxy/proxy.h"
#include "gateway/proxy/proxy_scopes.h"

namespace troupe {

using route::FailureKind;
using route::NodeIndex;

namespace {

std::string_view what_failed(FailureKind kind) {
  return kind == FailureKind::kSilent ? "the worker fell silent before the answer was complete"
                                      : "the worker broke off before the answer was complete";
}

ApiError broken_error(const route::Failure& failure, size_t tried) {
  if (failure.kind == FailureKind::kDeadline || failure.http_status == 504)
    return ApiError::deadline("the request's time was over before its answer was complete");
  std::string message(what_failed(failure.kind));
  if (tried > 1) message += ", and no other could go on";
  return ApiError::unavailable(message + "; ask again");
}

}  // namespace

// Ours are asked to tell what another needs to go on; a worker that goes on is told it.
void Proxy::ask_ids(const Exchange& exchange, RequestContext& context, ForwardInput& input) {
  context.ours = fleet_.ours(context.chosen->node);
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
void Proxy::began(RequestContext& context, Booking& booking) {
  booking.first_byte();
  if (context.asks_ids && context.tap->heartbeats()) fleet_.saw_beat(context.chosen->node);
  const TimePoint now = clock_.now();
  context.began_at = now;
  if (context.request_record != nullptr) context.request_record->began(now);
  if (context.paused_at != TimePoint{}) {
    const Duration pause = now - std::exchange(context.paused_at, TimePoint{});
    instruments_.resumed.Increment();
    if (context.request_record != nullptr) context.request_record->resumes += 1;
    instruments_.resume_pause.Observe(std::chrono::duration<double>(pause).count());
    log_.info("stream_resumed", {{"request", context.request_id},
                                 {"worker", fleet_.id(context.chosen->node)},
                                 {"attempt", context.attempt},
                                 {"tokens", context.tap->ids_told()},
                                 {"pause_ms", std::chrono::duration<double, std::milli>(pause).count()}});
    return;
  }
  if (context.entry != nullptr) context.entry->first_byte();
  if (context.routed.generates)
    instruments_.ttfb.Observe(std::chrono::duration<double>(now - context.started).count());
}

// After so long without a byte the worker is judged, and again as long after that. 0: never.
Duration Proxy::patience_with(const RequestContext& context) const {
  if (context.ours) return options_.silence_max;
  const Duration silence = options_.foreign_silence_max, stall = options_.foreign_stall_max;
  if (silence == Duration::zero() || stall == Duration::zero()) return std::max(silence, stall);
  return std::min(silence, stall);
}

// Asked whenever the worker has been silent for patience_with(), so that is added up.
bool Proxy::stalls(RequestContext& context) const {
  const bool more = context.passed.bytes() != context.silent_after;
  context.silent_after = context.passed.bytes();
  context.silent = (more ? Duration::zero() : context.silent) + patience_with(context);
  const bool began = context.began_at != TimePoint{};
  return began && options_.foreign_stall_max > Duration::zero() &&
         context.silent >= options_.foreign_stall_max;
}

// Of this try's worker, if it fails before the client has something.
bool Proxy::may_resend(const RequestContext& context) const {
  if (context.resend == Resend::kAsConfigured) return context.ours || options_.resend_to_foreign;
  return context.resend == Resend::kAlways;
}

// Nothing has come from the worker for as long as is waited (see forward_input()).
bool Proxy::gives_up(const Exchange& exchange, RequestContext& context,
                     std::optional<route::NextAttempt>& next) {
  const NodeIndex node = context.chosen->node;
  route::StallCheck silence;
  silence.ours = context.ours;
  silence.stream = context.routed.stream;
  silence.heartbeats_asked = context.asks_ids;
  silence.heartbeats_seen = context.asks_ids && context.tap->heartbeats();
  silence.node_heartbeats = fleet_.heartbeats(node);
  silence.suspect = fleet_.state(node) == route::NodeState::kSuspect;
  silence.dead = fleet_.known_dead(node);
  silence.stalled = !context.ours && stalls(context);
  // The shorter of two bounds may be the one of an answer that has begun.
  const bool heeded =
      options_.foreign_silence_max > Duration::zero() && context.silent >= options_.foreign_silence_max;
  if (!context.ours && !silence.stalled && !heeded) return false;
  const route::StallVerdict verdict = route::check_stall(silence);
  if (verdict.blamed) fleet_.on_event(node, route::HealthEvent::kSilent);
  if (verdict.ask_after) fleet_.ask_after(node);
  if (!verdict.hangs) return false;
  next = next_attempt(exchange, context, {FailureKind::kSilent, 0});
  return next.has_value() || verdict.hopeless;
}

std::optional<route::NextAttempt> Proxy::next_attempt(const Exchange& exchange, const RequestContext& context,
                                                      const route::Failure& failure) {
  const TimePoint now = clock_.now();
  const bool told = context.tap.has_value();
  const route::FailoverState state{
      context.routed.key,
      context.routed.model,
      context.decision,
      context.place,
      context.tried,
      exchange.head_sent(),
      told && context.tap->resumable(),
      told ? static_cast<int64_t>(context.tap->ids_told()) : 0,
      context.began_at == TimePoint{} ? Duration::zero() : now - context.began_at,
      context.deadline.remaining(now),
      may_resend(context)};
  const auto ours = [this](NodeIndex node) { return fleet_.ours(node); };
  const uint64_t refused = retry_budget_.refused();
  auto next = route::next_attempt(state, failure, ours, router_, retry_budget_, now);
  if (retry_budget_.refused() != refused) instruments_.retries_refused.Increment();
  return next;
}

void Proxy::go_on(const Exchange& exchange, RequestContext& context, route::NextAttempt next,
                  const ForwardResult& failed) {
  instruments_.retried(failed.failure.kind);
  context.decision = next.decision;
  context.place = next.place;
  context.began_at = {};
  context.silent = {};
  if (next.afresh) context.tried.erase(context.tried.begin(), context.tried.end() - 1);
  if (!exchange.head_sent()) return;
  context.routed.key.prompt_tokens = next.prompt_tokens;
  // A worker that failed before it went on has added to the pause.
  if (failed.sent_at != TimePoint{}) context.paused_at = failed.sent_at;
}

// The client has some of the stream: tell it in the stream's own language, and end without [DONE].
Task<void> Proxy::end_broken(Exchange& exchange, RequestContext& context, ForwardResult& result) {
  count_answer(context, 200, RequestOutcome::kBroken);
  if (context.request_record != nullptr) context.request_record->why = failure_name(result.failure.kind);
  instruments_.broken_streams.Increment();
  if (context.tap && context.tap->resumable()) instruments_.not_resumed.Increment();
  if (context.entry != nullptr) context.entry->outcome.status = kBrokenStatus;
  // The worker that began may have said itself what went wrong.
  const bool said = context.attempt == 1 && result.held && !result.held_body.empty();
  std::string event;
  append_sse_data(event, said ? result.held_body : broken_error(result.failure, context.attempt).to_json());
  exchange.close_after();
  context.phases.pause(clock_.now());
  co_await exchange.write(event);
  co_await exchange.finish();
}

}  // namespace troupe
