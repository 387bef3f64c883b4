// A request's way through the simulated fleet: key → decision → node → tokens, or the next candidate, as in a
// live gateway.

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/settings/option_checks.h"
#include "sim/fleet/simulation.h"
#include "sim/trace/block_names.h"

namespace troupe::sim {

namespace {

constexpr int kSlotBits = 32;

// Of a set or a session; none where the trace says none.
Hash128 name_of(uint64_t id) {
  return id == 0 ? Hash128{} : hash_bytes({reinterpret_cast<const char*>(&id), sizeof id});
}

}  // namespace

// What the next arrival will look up lies anywhere; it is named now, and on its way while earlier events are
// handled.
void Simulation::look_ahead(const TraceRequest& next) {
  recent_sessions_.prefetch(next.session);
  next_set_ = name_of(next.set);
  next_session_ = name_of(next.session);
  residency_->index.prefetch(next_session_);
  residency_->index.prefetch(next_set_);
  if (free_slots_.empty()) return;
  const auto* const flight = reinterpret_cast<const char*>(&flights_[free_slots_.back()]);
  for (size_t line = 0; line < sizeof(Flight); line += 64) __builtin_prefetch(flight + line, 1);
}

// Takes what `request` holds and leaves memory for the next.
void Simulation::arrive(TraceRequest& request) {
  recorder_.arrived(request);
  books_.arrived += 1;
  live_ += 1;
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint32_t>(flights_.size()));
    flights_.emplace_back();
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  Flight& flight = flights_[slot];
  flight.id = (++tries_ << kSlotBits) | slot;
  flight.number = books_.arrived;
  std::swap(flight.trace, request);
  flight.node = -1;
  flight.emitted = flight.attempts = 0;
  flight.at_node = false;
  flight.arrived = now_;
  flight.first = flight.last = {};
  flight.longest_gap = {};
  const auto gateways = static_cast<uint64_t>(options_.gateways);
  const uint64_t pick =
      options_.session_sticky && flight.trace.session != 0 ? flight.trace.session : draw_.bits() >> 16;
  flight.gateway = static_cast<int32_t>(pick % gateways);
  flight.gateway_life = gateway_lives_[static_cast<size_t>(flight.gateway)];
  make_key(flight);
  if (keeps_prefixes_) keep_prefix(flight);
  gateway_of(flight).retry_budget().earn(now_);
  decide(flight);
  send_next(flight);
}

// What a gateway would read off the messages: lengths are known here, so nothing is guessed from bytes.
void Simulation::make_key(Flight& flight) {
  const TraceRequest& trace = flight.trace;
  route::PrefixKey& key = flight.key;
  key.set = next_set_;
  key.session = next_session_;
  key.session_source = trace.session != 0 ? route::SessionSource::kHeader : route::SessionSource::kNone;
  key.prompt_tokens = trace.input_tokens;
  key.prompt_bytes = static_cast<size_t>(trace.input_tokens) * 4;
  key.prefix_tokens = trace.prefix_tokens;
  key.prefix_bytes = static_cast<size_t>(trace.prefix_tokens) * 4;
  key.history_tokens =
      trace.session == 0 ? 0 : std::min(recent_sessions_.tokens(trace.session), trace.input_tokens - 1);
  key.history_bytes = static_cast<size_t>(key.history_tokens) * 4;
  key.anchors.clear();
  key.refined = key.displaced = false;
  if (trace.set != 0 && trace.session != 0) return;
  // Nothing names the conversation, or the persona: it is found by its blocks, as a live gateway would.
  const size_t full = static_cast<size_t>(trace.input_tokens / trace.block_tokens);
  for (size_t i = 0; i < std::min(full, trace.blocks.size()); ++i) {
    const int64_t tokens = static_cast<int64_t>(i + 1) * trace.block_tokens;
    key.anchors.push_back({block_name(trace.blocks[i]), static_cast<size_t>(tokens) * 4, tokens});
  }
  if (trace.set == 0) gateway_of(flight).router().refine(key);
}

void Simulation::decide(Flight& flight) {
  const bool timed = (tries_ & 15) == 0;
  const auto begin = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
  flight.decision = gateway_of(flight).router().decide(flight.key, kModel, now_);
  if (timed) {
    decision_ns_ +=
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    decisions_timed_ += 1;
  }
  flight.tried = 0;
}

void Simulation::send_next(Flight& flight) {
  if (flight.tried >= flight.decision.order.size()) {
    end_flight(flight, now_, RequestEnd::kLost);
    return;
  }
  const route::Candidate& candidate = flight.decision.order[flight.tried++];
  flight.attempts += 1;
  flight.node = static_cast<int32_t>(candidate.node);
  flight.at_node = false;
  route::Router& router = gateway_of(flight).router();
  flight.planned = router.at_home(flight.key, kModel, candidate.node);
  flight.sent = router.sent(flight.key, kModel, candidate, now_);
  if (options_.network_ms > 0) {
    post(now_ + millis(options_.network_ms), EventKind::kDeliver, 0, flight.id);
  } else {
    deliver(flight.id);
  }
}

Simulation::Flight* Simulation::find(uint64_t id) {
  Flight& flight = flights_[static_cast<size_t>(id & 0xffffffff)];
  return flight.id == id ? &flight : nullptr;
}

SimNode::NewFlight Simulation::to_node(const Flight& flight) const {
  const TraceRequest& trace = flight.trace;
  SimNode::NewFlight out;
  out.id = flight.id;
  out.prompt_tokens = trace.input_tokens + flight.emitted;
  out.prefix_tokens = static_cast<int32_t>(flight.key.prefix_tokens);
  out.new_tokens = std::max(1, trace.output_tokens) - flight.emitted;
  out.set = flight.key.set;
  out.session = flight.key.session;
  out.planned = flight.planned;
  const size_t full = static_cast<size_t>(trace.input_tokens / trace.block_tokens);
  const auto prompt = std::span(trace.blocks).first(std::min(full, trace.blocks.size()));
  out.blocks.resize(prompt.size() + trace.output_blocks.size());
  name_blocks(prompt, out.blocks.data());
  name_blocks(trace.output_blocks, out.blocks.data() + prompt.size());
  return out;
}

void Simulation::deliver(uint64_t id) {
  Flight* flight = find(id);
  if (flight == nullptr) return;
  Node& node = nodes_[static_cast<size_t>(flight->node)];
  if (node.engine == nullptr) {
    fail(*flight, {route::FailureKind::kConnect, 0});
    return;
  }
  interrupt(flight->node);
  const Status added = node.engine->add(to_node(*flight), now_);
  if (!added.ok()) {
    fail(*flight,
         {route::FailureKind::kStatus, added.code() == absl::StatusCode::kResourceExhausted ? 429 : 400});
    return;
  }
  flight->at_node = true;
  flight->node_life = node.life;
  kick(flight->node);
}

void Simulation::fail(Flight& flight, const route::Failure& failure) {
  SimGateway& gateway = gateway_of(flight);
  const auto node = static_cast<route::NodeIndex>(flight.node);
  if (gateway_knows(flight)) gateway.router().finished(flight.key, flight.sent, std::nullopt, now_);
  if (failure.kind == route::FailureKind::kConnect)
    gateway.on_event(node, route::HealthEvent::kConnectError, now_);
  if (failure.kind == route::FailureKind::kTransport)
    gateway.on_event(node, route::HealthEvent::kTransportError, now_);
  route::AttemptState state;
  state.attempts = flight.attempts;
  state.first_byte_sent = flight.emitted > 0;
  state.resumable = options_.resume;
  const size_t left = flight.decision.order.size() - flight.tried;
  const bool extends =
      left == 0 && route::node_failed(failure) && gateway.router().may_extend(flight.key, flight.decision);
  state.candidates_left = extends ? 1 : static_cast<int>(left);
  const bool again =
      route::decide_retry(failure, state, gateway.retry_budget(), now_) == route::RetryAction::kNextCandidate;
  if (!again || (extends && !gateway.router().extend(flight.key, kModel, flight.decision, now_))) {
    end_flight(flight, now_, RequestEnd::kLost);
    return;
  }
  recorder_.retried(flight.arrived.time_since_epoch());
  flight.id = (++tries_ << kSlotBits) | (flight.id & 0xffffffff);
  flight.gateway_life = gateway_lives_[static_cast<size_t>(flight.gateway)];
  send_next(flight);
}

// `at`: when its client knows.
void Simulation::end_flight(Flight& flight, TimePoint at, RequestEnd end) {
  if (options_.on_request) tell_end(flight, at, end);
  if (end == RequestEnd::kLost) {
    books_.lost += 1;
    recorder_.lost({flight.arrived.time_since_epoch(), now_.time_since_epoch(),
                    flight.emitted == 0 ? flight.trace.input_tokens : 0});
  } else {
    books_.finished += 1;
  }
  live_ -= 1;
  free_slots_.push_back(static_cast<uint32_t>(flight.id & 0xffffffff));
  flight.id = 0;
}

void Simulation::tell_end(const Flight& flight, TimePoint at, RequestEnd end) const {
  RequestLine line;
  line.number = flight.number;
  line.arrived = flight.arrived.time_since_epoch();
  if (flight.emitted > 0) {
    line.first = flight.first.time_since_epoch();
    line.cached_tokens = flight.found_first;
  }
  line.ended = at.time_since_epoch();
  line.turn = flight.trace.turn;
  line.prompt_tokens = flight.trace.input_tokens;
  line.tokens = flight.emitted;
  line.attempts = flight.attempts;
  line.end = end;
  line.simulated_node = flight.node;
  // Of a stream that broke off the order may be another already.
  for (const route::Candidate& candidate : flight.decision.order.all()) {
    if (static_cast<int32_t>(candidate.node) != flight.node) continue;
    line.branch = route::branch_name(candidate.branch);
    line.expected_tokens = candidate.expect_cached;
  }
  options_.on_request(line);
}

void Simulation::kick(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  if (now_ < node.stalled_until) return;
  if (const auto ends = node.engine->begin_step(now_)) expect_step_end(index, *ends);
}

void Simulation::expect_step_end(int32_t index, TimePoint at) {
  Node& node = nodes_[static_cast<size_t>(index)];
  node.step_end = at;
  post(at, EventKind::kStepEnd, index, node.life);
}

// Before something happens to a node that its next steps hang on.
void Simulation::interrupt(int32_t index) {
  if (const auto ends = nodes_[static_cast<size_t>(index)].engine->interrupt(now_))
    expect_step_end(index, *ends);
}

void Simulation::end_step(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  if (now_ < node.stalled_until) {
    expect_step_end(index, node.stalled_until);
    return;
  }
  node.step_end = {};
  for (const SimNode::Token& token : node.engine->end_step(now_)) on_token(index, token);
  tell_residency(index);
  kick(index);
}

void Simulation::on_token(int32_t node, const SimNode::Token& token) {
  if (Handovers::is_one(token.id)) {
    if (token.last) computed_ahead(token.id);
    return;
  }
  Flight& flight = *find(token.id);
  const TimePoint seen = now_ + millis(options_.network_ms);
  if (token.first) {
    flight.cached_tokens = token.cached_tokens;
    if (flight.emitted == 0) {
      flight.first = seen;
      flight.found_first = token.cached_tokens;
      recorder_.first_token({flight.arrived.time_since_epoch(), seen.time_since_epoch(), node,
                             flight.trace.input_tokens, token.cached_tokens, flight.trace.set});
    } else {
      flight.longest_gap = std::max(flight.longest_gap, seen - flight.last);
    }
    if (gateway_knows(flight)) gateway_of(flight).router().first_byte(flight.key, flight.sent, now_);
    flight.emitted += 1;
  }
  if (!token.last) return;
  flight.emitted += token.tokens - 1;
  flight.longest_gap = std::max(flight.longest_gap, token.longest_gap);
  const auto room = static_cast<int32_t>(options_.profile.max_model_len) - flight.trace.input_tokens;
  books_.tokens_due += std::min(std::max(1, flight.trace.output_tokens), room);
  books_.tokens_told += flight.emitted;
  route::AnswerCounts counts;
  counts.prompt_tokens = flight.trace.input_tokens;
  counts.completion_tokens = flight.emitted;
  counts.cached_tokens = flight.cached_tokens;
  counts.has_cached = true;
  if (gateway_knows(flight)) {
    gateway_of(flight).router().finished(flight.key, flight.sent, counts, now_);
    gateway_of(flight).on_event(static_cast<route::NodeIndex>(node), route::HealthEvent::kAnswered, now_);
  }
  if (flight.trace.session != 0) {
    recent_sessions_.set(flight.trace.session, flight.trace.input_tokens + flight.emitted);
  }
  recorder_.finished({flight.arrived.time_since_epoch(), flight.first.time_since_epoch(),
                      seen.time_since_epoch(), node, flight.emitted, flight.longest_gap});
  end_flight(flight, seen, RequestEnd::kAnswered);
}

}  // namespace troupe::sim
