// A request's way through the simulated fleet: key → decision → node → tokens, or the next candidate, as in a
// live gateway.

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/settings/option_checks.h"
#include "sim/fleet/simulation.h"
#include "sim/trace/block_names.h"

namespace troupe::sim {

namespace {

constexpr int kSlotBits = 32;

// The name of a set or a session; none where the trace says none.
Hash128 name_of(uint64_t id) {
  return id == 0 ? Hash128{} : hash_bytes({reinterpret_cast<const char*>(&id), sizeof id});
}

}  // namespace

// The entries that the next arrival will look up lie anywhere; they are named now, and on their way while
// earlier events are handled.
void Simulation::look_ahead(const TraceRequest& next) {
  recent_sessions_.prefetch(next.session);
  next_set_ = name_of(next.set);
  next_session_ = name_of(next.session);
  residency_->index.prefetch(next_session_);
  residency_->index.prefetch(next_set_);
  if (free_slots_.empty()) return;
  const auto* const sim_request = reinterpret_cast<const char*>(&requests_[free_slots_.back()]);
  for (size_t line = 0; line < sizeof(SimRequest); line += 64) __builtin_prefetch(sim_request + line, 1);
}

// Takes what `request` holds and leaves memory for the next.
void Simulation::arrive(TraceRequest& request) {
  recorder_.arrived(request);
  sums_.arrived += 1;
  live_ += 1;
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint32_t>(requests_.size()));
    requests_.emplace_back();
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  SimRequest& sim_request = requests_[slot];
  sim_request.id = (++tries_ << kSlotBits) | slot;
  sim_request.number = sums_.arrived;
  std::swap(sim_request.trace, request);
  sim_request.node = -1;
  sim_request.emitted = 0;
  sim_request.arrived = now_;
  sim_request.first = {};
  sim_request.gaps = {};
  sim_request.place = {};
  const auto gateways = static_cast<uint64_t>(options_.gateways);
  const uint64_t pick = options_.session_sticky && sim_request.trace.session != 0 ? sim_request.trace.session
                                                                                  : draw_.bits() >> 16;
  sim_request.gateway = static_cast<int32_t>(pick % gateways);
  sim_request.gateway_life = gateway_lives_[static_cast<size_t>(sim_request.gateway)];
  make_key(sim_request);
  if (keeps_prefixes_) keep_prefix(sim_request);
  sim_request.flow = route::RequestFlow();
  sim_request.flow.begin(sim_request.key, kModel, 1);
  perform(sim_request, choose(sim_request));
}

// The driver of a RequestFlow on the virtual clock, as gateway/proxy is over sockets.
void Simulation::perform(SimRequest& sim_request, route::Action action, std::string_view trouble) {
  if (action == route::Action::kAdmit) {
    if (admission_.active()) {
      admission_.arrive(static_cast<size_t>(sim_request.gateway),
                        {sim_request.id, sim_request.trace.key,
                         sim_request.admission_request(gateway_of(sim_request).router())},
                        sim_request.place, now_);
      if (sim_request.place.outcome == route::AdmissionOutcome::kWaiting) return;
      if (sim_request.place.refused()) return end_flight(sim_request, now_, RequestEnd::kRefused);
    }
    action = sim_request.flow.admitted(context_of(sim_request), false, now_);
  }
  if (action == route::Action::kSend) {
    send(sim_request);
  } else {
    end_flight(sim_request, now_, RequestEnd::kLost, trouble);
  }
}

// A gateway that has restarted has forgotten what it had sent.
route::FlowContext Simulation::context_of(SimRequest& sim_request) {
  if (gateway_lives_[static_cast<size_t>(sim_request.gateway)] != sim_request.gateway_life)
    sim_request.flow.forget_booking();
  return gateway_of(sim_request).flow_context();
}

// The key that a gateway would read off the messages: lengths are known here, so nothing is guessed from
// bytes.
void Simulation::make_key(SimRequest& sim_request) {
  const TraceRequest& trace = sim_request.trace;
  route::PrefixKey& key = sim_request.key;
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
  if (trace.set == 0) gateway_of(sim_request).router().refine(key);
}

route::Action Simulation::choose(SimRequest& sim_request) {
  const bool timed = (tries_ & 15) == 0;
  const auto begin = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
  const route::Action action = sim_request.flow.choose(context_of(sim_request), now_);
  if (timed) {
    decisions_.ns +=
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    decisions_.timed += 1;
  }
  return action;
}

// To the node of the flow's attempt, which is booked already.
void Simulation::send(SimRequest& sim_request) {
  const route::NodeIndex node = sim_request.flow.attempt().candidate.node;
  sim_request.node = static_cast<int32_t>(node);
  sim_request.here = 0;
  sim_request.at_node = false;
  sim_request.taken_at.reset();
  sim_request.planned = gateway_of(sim_request).router().at_home(sim_request.key, kModel, node);
  if (options_.network_ms > 0) {
    post(now_ + millis(options_.network_ms), EventKind::kDeliver, 0, sim_request.id);
  } else {
    deliver(sim_request.id);
  }
}

Simulation::SimRequest* Simulation::find(uint64_t id) {
  SimRequest& sim_request = requests_[static_cast<size_t>(id & 0xffffffff)];
  return sim_request.id == id ? &sim_request : nullptr;
}

// A trace does not say how long an answer its client allowed, but how long it became: that is the bound
// here.
route::AdmissionRequest Simulation::SimRequest::admission_request(const route::Router& router) const {
  route::AdmissionSpec spec;
  spec.pool = kModel;
  spec.answer_tokens_max = std::max(1, trace.output_tokens);
  spec.deadline = TimePoint::max();
  return route::admission_request(router, key, flow.decision(), spec);
}

SimNode::NewSimRequest Simulation::SimRequest::to_node() const {
  SimNode::NewSimRequest out;
  out.id = id;
  out.prompt_tokens = trace.input_tokens + emitted;
  out.prefix_tokens = static_cast<int32_t>(key.prefix_tokens);
  out.new_tokens = std::max(1, trace.output_tokens) - emitted;
  out.set = key.set;
  out.session = key.session;
  out.planned = planned;
  const size_t full = static_cast<size_t>(trace.input_tokens / trace.block_tokens);
  const auto prompt = std::span(trace.blocks).first(std::min(full, trace.blocks.size()));
  out.blocks.resize(prompt.size() + trace.output_blocks.size());
  name_blocks(prompt, out.blocks.data());
  name_blocks(trace.output_blocks, out.blocks.data() + prompt.size());
  return out;
}

// A node that stands still reads nothing of it: its connection is made, and silent.
void Simulation::deliver(uint64_t id) {
  SimRequest* sim_request = find(id);
  if (sim_request == nullptr) return;
  Node& node = nodes_[static_cast<size_t>(sim_request->node)];
  if (node.engine == nullptr) {
    fail(*sim_request, {route::FailureKind::kConnect, 0});
    return;
  }
  sim_request->at_node = true;
  sim_request->node_life = node.life;
  if (now_ < node.stalled_until) {
    node.undelivered.push_back(id);
    watch_silence(*sim_request, now_ - millis(options_.network_ms));
    return;
  }
  interrupt(sim_request->node);
  const Status added = node.engine->add(sim_request->to_node(), now_);
  if (!added.ok()) {
    fail(*sim_request,
         {route::FailureKind::kStatus, added.code() == absl::StatusCode::kResourceExhausted ? 429 : 400});
    return;
  }
  sim_request->taken_at = now_;
  kick(sim_request->node);
}

// `received`: the time of the last byte that its node has sent, or of its request's.
void Simulation::watch_silence(const SimRequest& sim_request, TimePoint received) {
  const Duration timeout = route::silence_timeout(options_.stall, true);
  if (timeout == Duration::zero()) return;
  const Node& node = nodes_[static_cast<size_t>(sim_request.node)];
  const TimePoint at =
      received + timeout + (sim_request.taken_at ? millis(options_.network_ms) : Duration::zero());
  post(std::max(at, now_), EventKind::kSilent, node.stalls, sim_request.id);
}

// Its node stands still: only then does a stream bring nothing for so long.
void Simulation::silent(uint64_t id, int32_t stall) {
  SimRequest* const sim_request = find(id);
  if (sim_request == nullptr) return;
  Node& node = nodes_[static_cast<size_t>(sim_request->node)];
  if (node.stalls != stall || now_ >= node.stalled_until) return;  // it has gone on
  note_progress(*sim_request);
  route::RequestFlow::SilentFacts facts;
  facts.heartbeats_asked = true;
  facts.heartbeats_seen = sim_request->taken_at.has_value();
  if (!sim_request->flow.silent(context_of(*sim_request), facts, sim_request->progress(options_.resume),
                                now_))
    return watch_silence(*sim_request, now_);
  if (sim_request->taken_at) node.given_up.push_back(id);
  fail(*sim_request, {route::FailureKind::kSilent, 0});
}

route::AnswerProgress Simulation::SimRequest::progress(bool resumable) const {
  route::AnswerProgress progress;
  progress.started = emitted > 0;
  progress.resumable = resumable;
  progress.tokens = emitted;
  return progress;
}

void Simulation::fail(SimRequest& sim_request, const route::Failure& failure) {
  const route::AnswerProgress progress = sim_request.progress(options_.resume);
  const route::Action action =
      sim_request.flow.failed(context_of(sim_request), failure, true, progress, now_);
  if (action == route::Action::kSend) {
    const auto arrived = sim_request.arrived.time_since_epoch();
    progress.started ? recorder_.resumed(arrived) : recorder_.retried(arrived);
    sim_request.id = (++tries_ << kSlotBits) | (sim_request.id & 0xffffffff);
    sim_request.gateway_life = gateway_lives_[static_cast<size_t>(sim_request.gateway)];
  }
  perform(sim_request, action, loss_words(failure));
}

// `at`: when its client knows. `why`: of a lost one.
void Simulation::end_flight(SimRequest& sim_request, TimePoint at, RequestEnd end, std::string_view why) {
  if (admission_.active()) {
    SimAdmission::Cost cost;
    const int64_t prompt = sim_request.trace.input_tokens;
    if (end == RequestEnd::kAnswered)
      cost.computed = prompt - sim_request.cached_tokens + sim_request.emitted;
    if (sim_request.emitted > 0) cost.all = prompt + sim_request.emitted;
    admission_.leave(static_cast<size_t>(sim_request.gateway), sim_request.trace.key, sim_request.place, cost,
                     now_);
    recorder_.queued(sim_request.arrived.time_since_epoch(), sim_request.place);
  }
  if (options_.on_request) options_.on_request(sim_request.line(at, end));
  if (end == RequestEnd::kLost || end == RequestEnd::kRefused) {
    (end == RequestEnd::kLost ? sums_.lost : sums_.refused) += 1;
    recorder_.lost({sim_request.arrived.time_since_epoch(), now_.time_since_epoch(),
                    sim_request.emitted == 0 ? sim_request.trace.input_tokens : 0,

                    end == RequestEnd::kRefused
                        ? absl::StrCat("refused by the queue: ", to_absl(sim_request.place.refusal()))
                        : std::string(why)});
  } else {
    sums_.finished += 1;
  }
  live_ -= 1;
  free_slots_.push_back(static_cast<uint32_t>(sim_request.id & 0xffffffff));
  sim_request.id = 0;
}

RequestLine Simulation::SimRequest::line(TimePoint at, RequestEnd end) const {
  RequestLine out;
  out.number = number;
  out.arrived = arrived.time_since_epoch();
  if (emitted > 0) {
    out.first = first.time_since_epoch();
    out.cached_tokens = found_first;
  }
  out.ended = at.time_since_epoch();
  out.turn = trace.turn;
  out.prompt_tokens = trace.input_tokens;
  out.tokens = emitted;
  out.attempts = flow.attempts();
  out.end = end;
  out.place = place;
  out.simulated_node = node;
  if (const route::Candidate* const chosen = flow.chosen(); chosen != nullptr) {
    out.branch = route::branch_name(chosen->branch);
    out.expected_tokens = chosen->expect_cached;
  }
  return out;
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
  if (!node.given_up.empty()) node.drop_given_up();
  report_residency(index);
  kick(index);
}

void Simulation::on_token(int32_t node, const SimNode::Token& token) {
  if (Handovers::is_one(token.id)) {
    if (token.last) computed_ahead(token.id);
    return;
  }
  SimRequest* const found = find(token.id);
  if (found == nullptr) return;  // given up: its answer is not read
  SimRequest& sim_request = *found;
  const TimePoint seen = now_ + millis(options_.network_ms);
  if (token.first) {
    sim_request.cached_tokens = token.cached_tokens;
    if (sim_request.emitted == 0) {
      sim_request.first = seen;
      sim_request.found_first = token.cached_tokens;
      recorder_.first_token({sim_request.arrived.time_since_epoch(), seen.time_since_epoch(), node,
                             sim_request.trace.input_tokens, token.cached_tokens, sim_request.trace.set});
    } else {
      sim_request.gaps.longest = std::max(sim_request.gaps.longest, seen - sim_request.gaps.last_token);
    }
    sim_request.flow.first_byte(context_of(sim_request), true, now_);
    sim_request.emitted += 1;
    sim_request.here = 1;
  }
  if (!token.last) return;
  sim_request.emitted += token.tokens - sim_request.here;
  sim_request.gaps.longest = std::max(sim_request.gaps.longest, token.longest_gap);
  const auto room = static_cast<int32_t>(options_.profile.max_model_len) - sim_request.trace.input_tokens;
  sums_.tokens_due += std::min(std::max(1, sim_request.trace.output_tokens), room);
  sums_.tokens_sent += sim_request.emitted;
  route::AnswerCounts counts;
  counts.prompt_tokens = sim_request.trace.input_tokens;
  counts.completion_tokens = sim_request.emitted;
  counts.cached_tokens = sim_request.cached_tokens;
  counts.has_cached = true;
  sim_request.flow.answered(context_of(sim_request), counts, 200, now_);
  if (sim_request.trace.session != 0) {
    recent_sessions_.set(sim_request.trace.session, sim_request.trace.input_tokens + sim_request.emitted);
  }
  recorder_.finished({sim_request.arrived.time_since_epoch(), sim_request.first.time_since_epoch(),
                      seen.time_since_epoch(), node, sim_request.emitted, sim_request.gaps.longest});
  end_flight(sim_request, seen, RequestEnd::kAnswered);
}

}  // namespace troupe::sim
