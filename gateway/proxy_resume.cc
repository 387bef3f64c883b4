// A worker that fails while it answers: who goes on, and what the client is told where nobody can.
//
// Until the first byte has gone out, the request is simply sent to the next candidate. After it the stream is
// gone on with: the next worker gets the request and the ids of all that the client has, and the same
// generator at the same place. Who that is, is decided anew: the order of minutes ago knows nothing of what
// has happened since. Nobody is asked twice.

#include <algorithm>

#include "common/core/sse.h"
#include "gateway/proxy.h"
#include "gateway/proxy_scopes.h"

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
    input.body = flight.resume_body;
  }
  input.headers.emplace_back("x-troupe-ids", "1");
  input.tap = &*flight.tap;
}

// The answer's first byte, or the first of a worker that goes on with it.
void Proxy::began(Flight& flight, Booking& booking) {
  booking.first_byte();
  if (flight.asks_ids && flight.tap->beats()) fleet_.saw_beat(flight.chosen->node);
  const TimePoint now = clock_.now();
  if (flight.paused_at != TimePoint{}) {
    const Duration pause = now - std::exchange(flight.paused_at, TimePoint{});
    instruments_.resumed.Increment();
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

// Nothing has come from the worker for silence_max. In a stream that brings heartbeats that is a hang. Before
// its head a worker may still be reading a long prompt, so there probes, asked for now, or other streams must
// agree. What brings no heartbeats is given up where probes have found the worker dead; not one of another
// kind, which may compute on the very thread that should answer probes.
bool Proxy::gives_up(const Exchange& exchange, Flight& flight, std::optional<Next>& next) {
  const NodeIndex node = flight.chosen->node;
  bool hangs = flight.ours && fleet_.known_dead(node);
  if (flight.asks_ids && flight.tap->beats()) {
    hangs = true;
    fleet_.on_event(node, route::HealthEvent::kSilent);
  } else if (flight.asks_ids && fleet_.beats(node)) {
    hangs = hangs || fleet_.state(node) == route::NodeState::kSuspect;
    fleet_.ask_after(node);
  }
  if (!hangs) return false;
  next = next_try(exchange, flight, {FailureKind::kSilent, 0});
  return next.has_value();
}

// The first place from `place` on whom this request may be sent to.
size_t Proxy::next_place(const Flight& flight, const route::Decision& decision, size_t place,
                         bool resumes) const {
  const auto may_be_asked = [&](NodeIndex node) {
    const bool tried = std::find(flight.tried.begin(), flight.tried.end(), node) != flight.tried.end();
    return !tried && (!resumes || fleet_.ours(node));
  };
  while (place < decision.order.size() && !may_be_asked(decision.order[place].node)) place += 1;
  return place;
}

std::optional<Proxy::Next> Proxy::next_try(const Exchange& exchange, const Flight& flight,
                                           const route::Failure& failure) {
  const TimePoint now = clock_.now();
  const route::PrefixKey& key = flight.routed.key;
  route::AttemptState state;
  state.attempts = static_cast<int>(flight.attempt);
  state.first_byte_sent = exchange.head_sent();
  state.resumable = flight.tap && flight.tap->resumable();
  state.remaining = flight.deadline.remaining(now);
  Next next;
  next.decision = flight.decision;
  next.place = flight.place + 1;
  const bool resumes = state.first_byte_sent && state.resumable;
  if (resumes) {
    route::PrefixKey longer = key;
    longer.prompt_tokens = 0;  // an earlier resume's
    longer.prompt_tokens = router_.prompt_tokens(longer) + static_cast<int64_t>(flight.tap->ids_told());
    next.prompt_tokens = longer.prompt_tokens;
    next.decision = router_.decide(longer, flight.routed.model, now);
    next.place = 0;
  }
  next.place = next_place(flight, next.decision, next.place, resumes);
  const bool extends = next.place == next.decision.order.size() && route::node_failed(failure) &&
                       router_.may_extend(key, next.decision);
  state.candidates_left = static_cast<int>(next.decision.order.size() - next.place) + (extends ? 1 : 0);
  const auto action = route::decide_retry(failure, state, retry_budget_, now);
  if (action != route::RetryAction::kNextCandidate) return std::nullopt;
  if (!extends) return next;
  if (!router_.extend(key, flight.routed.model, next.decision, now)) return std::nullopt;
  next.place = next_place(flight, next.decision, next.place, resumes);
  if (next.place == next.decision.order.size()) return std::nullopt;
  return next;
}

void Proxy::go_on(const Exchange& exchange, Flight& flight, Next next, const ForwardResult& failed) {
  instruments_.retried(failed.failure.kind);
  flight.decision = next.decision;
  flight.place = next.place;
  if (!exchange.head_sent()) return;
  flight.routed.key.prompt_tokens = next.prompt_tokens;
  // A worker that failed before it went on has added to the pause.
  if (failed.sent_at != TimePoint{}) flight.paused_at = failed.sent_at;
}

// The client has some of the stream: tell it in the stream's own language, and end without [DONE].
Task<void> Proxy::end_broken(Exchange& exchange, Flight& flight, ForwardResult& result) {
  count_answer(flight, 200);
  instruments_.broken_streams.Increment();
  if (flight.tap && flight.tap->resumable()) instruments_.not_resumed.Increment();
  if (flight.entry != nullptr) flight.entry->outcome.status = kBrokenStatus;
  // The worker that began may have said itself what went wrong.
  const bool said = flight.attempt == 1 && result.held && !result.held_body.empty();
  std::string event;
  append_sse_data(event, said ? result.held_body : broken_error(result.failure, flight.attempt).to_json());
  exchange.close_after();
  co_await exchange.write(event);
  co_await exchange.finish();
}

}  // namespace troupe
