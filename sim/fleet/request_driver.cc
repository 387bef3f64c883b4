#include "sim/fleet/request_driver.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/settings/option_checks.h"

namespace troupe::sim {

RequestDriver::RequestDriver(const Parts& parts)
    : parts_(parts),
      admission_(parts.options.admission, parts.gateways.size(), parts.events, queue_surroundings()),
      keys_(parts.residency) {}

SimAdmission::Surroundings RequestDriver::queue_surroundings() {
  return {.workers =
              [this](size_t gateway) {
                const route::Router& router = parts_.gateways[gateway].router();
                return route::AdmissionController::Workers{router.view(), router.loads(),
                                                           router.known().gateways};
              },
          .place = [this](uint64_t id) -> QueuePlace& { return parts_.requests.find(id)->place; },
          .decided =
              [this](uint64_t id) {
                SimRequest& waited = *parts_.requests.find(id);
                const TimePoint now = parts_.events.now();
                if (waited.place.outcome != route::AdmissionOutcome::kAdmitted)
                  return end(waited, now, RequestEnd::kRefused);
                perform(waited, waited.flow.admitted(context_of(waited), true, now));
              },
          .asks_again =
              [this](uint64_t id) {
                SimRequest& asks = *parts_.requests.find(id);
                asks.gateway_incarnation = gateway_of(asks).incarnation();
                perform(asks, choose(asks));
              }};
}

void RequestDriver::look_ahead(const TraceRequest& next) {
  keys_.look_ahead(next);
  parts_.requests.prefetch_next();
}

void RequestDriver::arrive(TraceRequest& arrival) {
  parts_.recorder.arrived(arrival);
  sums_.arrived += 1;
  SimRequest& request = parts_.requests.add();
  request.number = sums_.arrived;
  std::swap(request.trace, arrival);
  request.node = route::kNoNode;
  request.emitted = 0;
  request.arrived = parts_.events.now();
  request.first = {};
  request.gaps = {};
  request.place = {};
  const uint64_t pick = parts_.options.session_sticky && request.trace.session != 0
                            ? request.trace.session
                            : parts_.draw.bits() >> 16;
  request.gateway = static_cast<uint32_t>(pick % parts_.gateways.size());
  request.gateway_incarnation = gateway_of(request).incarnation();
  keys_.read(request.trace, gateway_of(request).router(), request.key);
  parts_.prefixes.keep(request.key.set, request.trace);
  request.flow = route::RequestFlow();
  request.flow.begin(request.key, kModel, 1);
  perform(request, choose(request));
}

// A gateway that has restarted has forgotten what it had sent.
route::FlowContext RequestDriver::context_of(SimRequest& request) {
  SimGateway& gateway = gateway_of(request);
  if (gateway.incarnation() != request.gateway_incarnation) request.flow.forget_booking();
  return gateway.flow_context();
}

route::Action RequestDriver::choose(SimRequest& request) {
  const bool timed = (parts_.requests.tries() & 15) == 0;
  const auto begin = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
  const route::Action action = request.flow.choose(context_of(request), parts_.events.now());
  if (timed) {
    decisions_.ns +=
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    decisions_.timed += 1;
  }
  return action;
}

double RequestDriver::decision_us() const {
  return decisions_.timed > 0 ? decisions_.ns / 1e3 / static_cast<double>(decisions_.timed) : 0;
}

void RequestDriver::perform(SimRequest& request, route::Action action, std::string_view trouble) {
  const TimePoint now = parts_.events.now();
  if (action == route::Action::kAdmit) {
    if (admission_.active()) {
      admission_.arrive(
          request.gateway,
          {request.id, request.trace.key, request.admission_request(gateway_of(request).router())},
          request.place);
      if (request.place.outcome == route::AdmissionOutcome::kWaiting) return;
      if (request.place.refused()) return end(request, now, RequestEnd::kRefused);
    }
    action = request.flow.admitted(context_of(request), false, now);
  }
  if (action == route::Action::kSend) {
    send(request);
  } else {
    end(request, now, RequestEnd::kLost, trouble);
  }
}

// To the node of the flow's attempt, which is booked already.
void RequestDriver::send(SimRequest& request) {
  request.node = request.flow.attempt().candidate.node;
  request.here = 0;
  request.at_node = false;
  request.taken_at.reset();
  request.planned = gateway_of(request).router().at_home(request.key, kModel, request.node);
  if (parts_.options.network_ms > 0) {
    parts_.events.post(parts_.events.now() + millis(parts_.options.network_ms), EventKind::kDeliver, 0,
                       request.id);
  } else {
    deliver(request.id);
  }
}

// A node that stands still reads nothing of it: its connection is made, and silent.
void RequestDriver::deliver(uint64_t id) {
  SimRequest* const request = parts_.requests.find(id);
  if (request == nullptr) return;
  const FleetNode& node = parts_.fleet[request->node];
  if (node.engine == nullptr) return fail(*request, {route::FailureKind::kConnect, 0});
  const TimePoint now = parts_.events.now();
  request->at_node = true;
  request->node_incarnation = node.incarnation;
  if (parts_.fleet.stands_still(request->node)) {
    parts_.fleet.hold_undelivered(request->node, id);
    return parts_.streams.watch(*request, now - millis(parts_.options.network_ms));
  }
  parts_.fleet.interrupt(request->node);
  const Status added = node.engine->add(request->to_node(), now);
  if (!added.ok()) {
    const bool full = added.code() == absl::StatusCode::kResourceExhausted;
    return fail(*request, {route::FailureKind::kStatus, full ? 429 : 400});
  }
  request->taken_at = now;
  parts_.fleet.begin_step(request->node);
}

void RequestDriver::fail(SimRequest& request, const route::Failure& failure) {
  const route::AnswerProgress progress = request.progress(parts_.options.resume);
  const route::Action action =
      request.flow.failed(context_of(request), failure, true, progress, parts_.events.now());
  if (action == route::Action::kSend) {
    const auto arrived = request.arrived.time_since_epoch();
    progress.started ? parts_.recorder.resumed(arrived) : parts_.recorder.retried(arrived);
    parts_.requests.begin_try(request);
    request.gateway_incarnation = gateway_of(request).incarnation();
  }
  perform(request, action, loss_words(failure));
}

void RequestDriver::silent(uint64_t id, int32_t stall) {
  SimRequest* const request = parts_.requests.find(id);
  if (request == nullptr) return;
  const route::NodeIndex node = request->node;
  if (parts_.fleet[node].stalls != stall || !parts_.fleet.stands_still(node)) return;  // it has gone on
  parts_.streams.note_progress(*request);
  route::RequestFlow::SilentFacts facts;
  facts.heartbeats_asked = true;
  facts.heartbeats_seen = request->taken_at.has_value();
  const TimePoint now = parts_.events.now();
  if (!request->flow.silent(context_of(*request), facts, request->progress(parts_.options.resume), now))
    return parts_.streams.watch(*request, now);
  if (request->taken_at) parts_.fleet.give_up(node, id);
  fail(*request, {route::FailureKind::kSilent, 0});
}

void RequestDriver::connections_break(route::NodeIndex node, uint64_t incarnation) {
  for (SimRequest* request : parts_.requests.at(node, incarnation)) {
    const bool started = request->emitted > 0;
    fail(*request, {started ? route::FailureKind::kBody : route::FailureKind::kTransport, 0});
  }
}

void RequestDriver::on_token(const SimNode::Token& token) {
  SimRequest* const request = parts_.requests.find(token.id);
  if (request == nullptr) return;  // given up: its answer is not read
  if (token.first) first_token(*request, token);
  if (token.last) last_token(*request, token);
}

void RequestDriver::first_token(SimRequest& request, const SimNode::Token& token) {
  const TimePoint seen = parts_.events.now() + millis(parts_.options.network_ms);
  request.cached_tokens = token.cached_tokens;
  if (request.emitted == 0) {
    request.first = seen;
    request.found_first = token.cached_tokens;
    parts_.recorder.first_token({request.arrived.time_since_epoch(), seen.time_since_epoch(),
                                 static_cast<int32_t>(request.node), request.trace.input_tokens,
                                 token.cached_tokens, request.trace.set});
  } else {
    request.gaps.longest = std::max(request.gaps.longest, seen - request.gaps.last_token);
  }
  request.flow.first_byte(context_of(request), true, parts_.events.now());
  request.emitted += 1;
  request.here = 1;
}

void RequestDriver::last_token(SimRequest& request, const SimNode::Token& token) {
  const TimePoint seen = parts_.events.now() + millis(parts_.options.network_ms);
  request.emitted += token.tokens - request.here;
  request.gaps.longest = std::max(request.gaps.longest, token.longest_gap);
  const auto room = static_cast<int32_t>(parts_.options.profile.max_model_len) - request.trace.input_tokens;
  sums_.tokens_due += std::min(std::max(1, request.trace.output_tokens), room);
  sums_.tokens_sent += request.emitted;
  route::AnswerCounts counts;
  counts.prompt_tokens = request.trace.input_tokens;
  counts.completion_tokens = request.emitted;
  counts.cached_tokens = request.cached_tokens;
  counts.has_cached = true;
  request.flow.answered(context_of(request), counts, 200, parts_.events.now());
  keys_.answered(request.trace, request.emitted);
  parts_.recorder.finished({request.arrived.time_since_epoch(), request.first.time_since_epoch(),
                            seen.time_since_epoch(), static_cast<int32_t>(request.node), request.emitted,
                            request.gaps.longest});
  end(request, seen, RequestEnd::kAnswered);
}

// `at`: when its client knows. `why`: of a lost one.
void RequestDriver::end(SimRequest& request, TimePoint at, RequestEnd how, std::string_view why) {
  const Duration arrived = request.arrived.time_since_epoch();
  const TimePoint now = parts_.events.now();
  if (admission_.active()) {
    SimAdmission::Cost cost;
    const int64_t prompt = request.trace.input_tokens;
    if (how == RequestEnd::kAnswered) cost.computed = prompt - request.cached_tokens + request.emitted;
    if (request.emitted > 0) cost.all = prompt + request.emitted;
    admission_.leave(request.gateway, request.trace.key, request.place, cost);
    parts_.recorder.queued(arrived, request.place);
  }
  if (parts_.options.on_request) parts_.options.on_request(request.line(at, how));
  if (how == RequestEnd::kLost || how == RequestEnd::kRefused) {
    (how == RequestEnd::kLost ? sums_.lost : sums_.refused) += 1;
    parts_.recorder.lost({arrived, now.time_since_epoch(),
                          request.emitted == 0 ? request.trace.input_tokens : 0,
                          how == RequestEnd::kRefused
                              ? absl::StrCat("refused by the queue: ", to_absl(request.place.refusal()))
                              : std::string(why)});
  } else {
    sums_.finished += 1;
  }
  parts_.requests.remove(request);
}

void RequestDriver::end_all() {
  parts_.requests.for_each([this](SimRequest& request) {
    if (parts_.options.on_request)
      parts_.streams.note_progress(request);  // until now only its first token was
    // Never admitted within the drain, or still being answered.
    end(request, parts_.events.now(), request.emitted == 0 ? RequestEnd::kLost : RequestEnd::kUnfinished);
  });
}

}  // namespace troupe::sim
