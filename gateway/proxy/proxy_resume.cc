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
void Proxy::ask_ids(const Exchange& exchange, Flight& flight, ForwardInput& input) {
  flight.ours = fleet_.ours(flight.chosen->node);
  flight.asks_ids = flight.routed.stream && flight.routed.generates && flight.ours;
  if (!flight.asks_ids) return;
  if (!flight.tap) flight.tap.emplace(flight.routed.choices == 1);
  flight.tap->next_worker(exchange.head_sent());
  if (exchange.head_sent()) {
    flight.resume_body = flight.tap->resume_body(body_for_worker(exchange.request(), flight));
    input.request.body = flight.resume_body;
  }
  input.request.headers.emplace_back("x-troupe-ids", "1");
  input.tap = &*flight.tap;
}

// The answer's first byte, or the first of a worker that goes on with it.
void Proxy::began(Flight& flight, Booking& booking) {
  booking.first_byte();
  if (flight.asks_ids && flight.tap->beats()) fleet_.saw_beat(flight.chosen->node);
  const TimePoint now = clock_.now();
  flight.began_at = now;
  if (flight.trail != nullptr) flight.trail->began(now);
  if (flight.paused_at != TimePoint{}) {
    const Duration pause = now - std::exchange(flight.paused_at, TimePoint{});
    instruments_.resumed.Increment();
    if (flight.trail != nullptr) flight.trail->resumes += 1;
    instruments_.resume_pause.Observe(std::chrono::duration<double>(pause).count());
    log_.info("stream_resumed", {{"request", flight.request_id},
                                 {"worker", fleet_.id(flight.chosen->node)},
                                 {"attempt", flight.attempt},
                                 {"tokens", flight.tap->ids_told()},
                                 {"pause_ms", std::chrono::duration<double, std::milli>(pause).count()}});
    return;
  }
  if (flight.entry != nullptr) flight.entry->first_byte();
  if (flight.routed.generates)
    instruments_.ttfb.Observe(std::chrono::duration<double>(now - flight.started).count());
}

// After so long without a byte the worker is judged, and again as long after that. 0: never.
Duration Proxy::patience_with(const Flight& flight) const {
  if (flight.ours) return options_.silence_max;
  const Duration silence = options_.foreign_silence_max, stall = options_.foreign_stall_max;
  if (silence == Duration::zero() || stall == Duration::zero()) return std::max(silence, stall);
  return std::min(silence, stall);
}

// Asked whenever the worker has been silent for patience_with(), so that is added up.
bool Proxy::stalls(Flight& flight) const {
  const bool more = flight.passed.bytes() != flight.silent_after;
  flight.silent_after = flight.passed.bytes();
  flight.silent = (more ? Duration::zero() : flight.silent) + patience_with(flight);
  const bool began = flight.began_at != TimePoint{};
  return began && options_.foreign_stall_max > Duration::zero() &&
         flight.silent >= options_.foreign_stall_max;
}

// Of this try's worker, if it fails before the client has something.
bool Proxy::may_resend(const Flight& flight) const {
  if (flight.resend == Resend::kAsConfigured) return flight.ours || options_.resend_to_foreign;
  return flight.resend == Resend::kAlways;
}

// Nothing has come from the worker for as long as is waited (see forward_input()).
bool Proxy::gives_up(const Exchange& exchange, Flight& flight, std::optional<route::NextTry>& next) {
  const NodeIndex node = flight.chosen->node;
  route::Silence silence;
  silence.ours = flight.ours;
  silence.stream = flight.routed.stream;
  silence.beats_asked = flight.asks_ids;
  silence.beats_seen = flight.asks_ids && flight.tap->beats();
  silence.node_beats = fleet_.beats(node);
  silence.suspect = fleet_.state(node) == route::NodeState::kSuspect;
  silence.dead = fleet_.known_dead(node);
  silence.stalled = !flight.ours && stalls(flight);
  // The shorter of two bounds may be the one of an answer that has begun.
  const bool heeded =
      options_.foreign_silence_max > Duration::zero() && flight.silent >= options_.foreign_silence_max;
  if (!flight.ours && !silence.stalled && !heeded) return false;
  const route::SilenceVerdict verdict = route::judge_silence(silence);
  if (verdict.blamed) fleet_.on_event(node, route::HealthEvent::kSilent);
  if (verdict.ask_after) fleet_.ask_after(node);
  if (!verdict.hangs) return false;
  next = next_try(exchange, flight, {FailureKind::kSilent, 0});
  return next.has_value() || verdict.hopeless;
}

std::optional<route::NextTry> Proxy::next_try(const Exchange& exchange, const Flight& flight,
                                              const route::Failure& failure) {
  const TimePoint now = clock_.now();
  const bool told = flight.tap.has_value();
  const route::TryState state{flight.routed.key,
                              flight.routed.model,
                              flight.decision,
                              flight.place,
                              flight.tried,
                              exchange.head_sent(),
                              told && flight.tap->resumable(),
                              told ? static_cast<int64_t>(flight.tap->ids_told()) : 0,
                              flight.began_at == TimePoint{} ? Duration::zero() : now - flight.began_at,
                              flight.deadline.remaining(now),
                              may_resend(flight)};
  const auto ours = [this](NodeIndex node) { return fleet_.ours(node); };
  const uint64_t refused = retry_budget_.refused();
  auto next = route::next_try(state, failure, ours, router_, retry_budget_, now);
  if (retry_budget_.refused() != refused) instruments_.retries_refused.Increment();
  return next;
}

void Proxy::go_on(const Exchange& exchange, Flight& flight, route::NextTry next,
                  const ForwardResult& failed) {
  instruments_.retried(failed.failure.kind);
  flight.decision = next.decision;
  flight.place = next.place;
  flight.began_at = {};
  flight.silent = {};
  if (next.afresh) flight.tried.erase(flight.tried.begin(), flight.tried.end() - 1);
  if (!exchange.head_sent()) return;
  flight.routed.key.prompt_tokens = next.prompt_tokens;
  // A worker that failed before it went on has added to the pause.
  if (failed.sent_at != TimePoint{}) flight.paused_at = failed.sent_at;
}

// The client has some of the stream: tell it in the stream's own language, and end without [DONE].
Task<void> Proxy::end_broken(Exchange& exchange, Flight& flight, ForwardResult& result) {
  count_answer(flight, 200, TrailEnd::kBroken);
  if (flight.trail != nullptr) flight.trail->why = failure_name(result.failure.kind);
  instruments_.broken_streams.Increment();
  if (flight.tap && flight.tap->resumable()) instruments_.not_resumed.Increment();
  if (flight.entry != nullptr) flight.entry->outcome.status = kBrokenStatus;
  // The worker that began may have said itself what went wrong.
  const bool said = flight.attempt == 1 && result.held && !result.held_body.empty();
  std::string event;
  append_sse_data(event, said ? result.held_body : broken_error(result.failure, flight.attempt).to_json());
  exchange.close_after();
  flight.phases.pause(clock_.now());
  co_await exchange.write(event);
  co_await exchange.finish();
}

}  // namespace troupe
