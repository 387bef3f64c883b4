#include "sim/fleet/simulator.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/settings/option_checks.h"
#include "gateway/route/policy/policy.h"
#include "sim/fleet/simulation.h"

namespace troupe::sim {

namespace {

constexpr size_t kSessionsRemembered = 1 << 20;

Status check_options(const SimulationOptions& o) {
  TROUPE_RETURN_IF_ERROR(check_range("nodes", o.nodes, 1, 100'000));
  TROUPE_RETURN_IF_ERROR(check_range("gateways", o.gateways, 1, 1'000));
  TROUPE_RETURN_IF_ERROR(check_range("warmup-s", o.warmup_s, 0, 1e8));
  TROUPE_RETURN_IF_ERROR(check_range("slo-ttft-ms", o.slo_ttft_ms, 0, 1e9));
  TROUPE_RETURN_IF_ERROR(check_range("slo-tpot-ms", o.slo_tpot_ms, 0, 1e9));
  const std::chrono::duration<double, std::milli> tpot_budget = o.scheduler.tpot_budget;
  TROUPE_RETURN_IF_ERROR(check_range("tpot-budget-ms", tpot_budget.count(), 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("drain-s", o.drain_s, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("network-ms", o.network_ms, 0, 1e5));
  TROUPE_RETURN_IF_ERROR(check_range("report-ms", o.report_ms, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("residency-delay-ms", o.residency_delay_ms, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("gossip-ms", o.gossip_ms, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("detect-ms", o.detect_ms, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("join-ms", o.join_ms, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("join-ramp-s", o.join_ramp_s, 0, 3600));
  TROUPE_RETURN_IF_ERROR(check_range("handover-s", o.handover_s, 0, 3600));
  TROUPE_RETURN_IF_ERROR(route::check_policy(o.router.policy));
  TROUPE_RETURN_IF_ERROR(route::check(o.admission.controller.room));
  return check_faults(o.faults, o.nodes, o.gateways);
}

// A result that says what it is of; its figures follow.
Result result_for(const SimulationOptions& o) {
  Result result;
  const route::PolicyInfo& policy = route::policy_info(o.router.policy);
  result.policy = policy.name;
  if (policy.reads_residency) result.mode = route::mode_name(o.router.affinity.mode);
  result.nodes = o.nodes;
  result.gateways = o.gateways;
  result.seed = o.seed;
  result.profile = o.profile.name;
  return result;
}

}  // namespace

Simulation::Simulation(RequestSource& source, const SimulationOptions& options)
    : source_(source),
      options_(options),
      admission_(
          options.admission, static_cast<size_t>(std::max(options.gateways, 1)),
          {.post = [this](TimePoint at, size_t gateway,
                          uint64_t tag) { post(at, EventKind::kQueue, static_cast<int32_t>(gateway), tag); },
           .workers =
               [this](size_t gateway) {
                 const route::Router& router = gateways_[gateway]->router();
                 return route::AdmissionController::Workers{router.view(), router.loads(),
                                                            router.known().gateways};
               },
           .place = [this](uint64_t id) -> QueuePlace& { return find(id)->place; },
           .decided =
               [this](uint64_t id) {
                 SimRequest& waited = *find(id);
                 if (waited.place.outcome != route::AdmissionOutcome::kAdmitted)
                   return end_flight(waited, now_, RequestEnd::kRefused);
                 perform(waited, waited.flow.admitted(context_of(waited), true, now_));
               },
           .asks_again =
               [this](uint64_t id) {
                 SimRequest& asks = *find(id);
                 asks.gateway_life = gateway_lives_[static_cast<size_t>(asks.gateway)];
                 perform(asks, choose(asks));
               }}),
      prober_(
          {options.probe, static_cast<size_t>(std::max(options.gateways, 1)), 2 * millis(options.network_ms)},
          {.post = [this](TimePoint at, route::NodeIndex node,
                          uint64_t tag) { post(at, EventKind::kProbe, static_cast<int32_t>(node), tag); },
           .stand =
               [this](route::NodeIndex node) {
                 const Node& n = nodes_[node];
                 return SimProber::Surroundings::Stand{n.engine != nullptr && now_ >= n.answers_from,
                                                       n.stalled_until};
               },
           .saw = [this](size_t gateway, route::NodeIndex node,
                         bool answered) { saw_probe(gateway, static_cast<int32_t>(node), answered); }}),
      residency_(std::make_shared<route::ExactResidency>(options.router.memory.placements_per_node * 4)),
      set_loads_(options.router.planner.half_life, options.router.memory.sets_max),
      recorder_({.warmup = millis(options.warmup_s * 1e3),
                 .slo_ttft_ms = options.slo_ttft_ms,
                 .slo_tpot_ms = options.slo_tpot_ms,
                 .pooled_kv_tokens = options.profile.kv_cache_tokens * options.nodes,
                 .crowd_set = options.crowd_set,
                 .crowd_begin = options.crowd_begin,
                 .queue = options.admission.active()}),
      draw_(options.seed),
      recent_sessions_(kSessionsRemembered),
      handovers_(options.router.memory.sets_max) {}

Status Simulation::start() {
  TROUPE_RETURN_IF_ERROR(check_options(options_));
  options_.router.affinity.gateways = options_.gateways;
  // The others are as their originals are.
  if (!route::policy_info(options_.router.policy).follows_table)
    options_.join_ramp_s = options_.handover_s = 0;
  keeps_prefixes_ = options_.handover_s > 0 && nodes_report() &&
                    std::any_of(options_.faults.begin(), options_.faults.end(), [](const Fault& fault) {
                      return fault.kind == Fault::Kind::kReturn || fault.kind == Fault::Kind::kJoin ||
                             fault.kind == Fault::Kind::kDrain;
                    });
  for (int32_t i = 0; i < options_.nodes; ++i) add_node();
  route::GossipRules gossip;
  gossip.gateways = options_.gateways;
  gossip.ledger = options_.router.affinity.peer_ledger;
  gossip.interval = millis(options_.gossip_ms);
  for (int32_t g = 0; g < options_.gateways; ++g) {
    const SimGateway::Options gateway{.router = options_.router,
                                      .retry = options_.retry,
                                      .nodes = options_.nodes,
                                      .seed = draw_.bits(),
                                      .residency = residency_,
                                      .ramp = millis(options_.join_ramp_s * 1e3),
                                      .stall = options_.stall,
                                      .gossip = gossip,
                                      .gateways = static_cast<uint32_t>(options_.gateways),
                                      .number = static_cast<uint32_t>(g)};
    gateways_.push_back(std::make_unique<SimGateway>(gateway, now_));
    gateway_lives_.push_back(1);
    SimGateway& made = *gateways_.back();
    made.on_suspicion = [this, g](route::NodeIndex node) { prober_.ask(static_cast<size_t>(g), node, now_); };
    made.on_leaving = [this, g](route::NodeIndex node, TimePoint until) {
      begin_leaving(static_cast<size_t>(g), node, until);
    };
    made.on_begins_empty = [this, &made](route::NodeIndex node) { begins_empty(made, node); };
  }
  prober_.begin(0, nodes_.size(), now_);
  for (int32_t slot = 0; slot < kReportSlots; ++slot)
    post(now_ + millis(options_.report_ms * (slot + 1) / kReportSlots), EventKind::kReports, slot);
  if (options_.gateways > 1) post(now_ + millis(options_.gossip_ms), EventKind::kGossip);
  post(now_ + options_.router.planner.tick, EventKind::kPlan);
  post(now_ + std::chrono::seconds(1), EventKind::kSecond);
  for (size_t i = 0; i < options_.faults.size(); ++i) {
    post(now_ + millis(options_.faults[i].at_s * 1e3), EventKind::kFault, static_cast<int32_t>(i));
  }
  return absl::OkStatus();
}

// The source's next request. One that lies too far ahead is refused before anything up to it is simulated.
StatusOr<bool> Simulation::read(TraceRequest& next) {
  TROUPE_ASSIGN_OR_RETURN(const bool more, source_.next(next));
  if (more && next.at > TraceReader::kSpanMax) {
    return invalid_argument(absl::StrCat("a request arrives ", next.at / std::chrono::seconds(1),
                                         " s after the first; a run has at most ",
                                         TraceReader::kSpanMax / std::chrono::seconds(1)));
  }
  return more;
}

StatusOr<Result> Simulation::run() {
  const auto wall_begin = std::chrono::steady_clock::now();
  auto shown_at = wall_begin;
  TraceRequest next;
  TROUPE_ASSIGN_OR_RETURN(bool more, read(next));
  // Ids stand for whole blocks, so nodes must cut prompts as the trace does.
  if (more) options_.profile.block_size = next.block_tokens;
  if (options_.profile.kv_cache_tokens < options_.profile.block_size) {
    return invalid_argument(absl::StrCat("the trace's blocks of ", options_.profile.block_size,
                                         " tokens do not fit the ", options_.profile.kv_cache_tokens,
                                         " KV tokens of profile ", options_.profile.name));
  }
  TROUPE_RETURN_IF_ERROR(start());
  look_ahead(next);
  TimePoint stop_at = TimePoint::max();
  while (true) {
    if (more && TimePoint{next.at} <= events_.top().at) {
      if (next.block_tokens != options_.profile.block_size) {
        return invalid_argument(absl::StrCat("the trace begins with blocks of ", options_.profile.block_size,
                                             " tokens and goes on with ", next.block_tokens,
                                             "; one run has one block size"));
      }
      now_ = TimePoint{next.at};
      arrive(next);
      TROUPE_ASSIGN_OR_RETURN(more, read(next));
      look_ahead(next);
      if (!more) stop_at = now_ + millis(options_.drain_s * 1e3);
    } else {
      const Event event = events_.top();
      if (!more && (live_ == 0 || event.at > stop_at)) break;
      events_.pop();
      fetch_ahead(events_.top());
      now_ = event.at;
      handle(event);
    }
    event_count_ += 1;
    const auto every = static_cast<uint64_t>(options_.conservation_every);
    if (every > 0 && event_count_ % every == 0) check_conservation(event_count_ / every % nodes_.size(), 1);
    if (options_.progress && event_count_ % 4096 == 0 &&
        std::chrono::steady_clock::now() - shown_at > std::chrono::milliseconds(500)) {
      shown_at = std::chrono::steady_clock::now();
      options_.progress(std::chrono::duration<double>(now_.time_since_epoch()).count(), sums_.arrived);
    }
    if (!more && live_ == 0) break;
  }
  check_conservation(0, nodes_.size());
  for (SimRequest& sim_request : requests_) {
    if (sim_request.id == 0) continue;
    if (options_.on_request) note_progress(sim_request);  // until now only its first token was
    // Never admitted within the drain, or still being answered.
    end_flight(sim_request, now_, sim_request.emitted == 0 ? RequestEnd::kLost : RequestEnd::kUnfinished);
  }
  second_over();

  Result result = result_for(options_);
  recorder_.fill(result);
  result.events = static_cast<int64_t>(event_count_);
  result.simulated_requests = sums_.arrived;
  result.decision_us = decisions_.timed > 0 ? decisions_.ns / 1e3 / static_cast<double>(decisions_.timed) : 0;
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_begin).count();
  return result;
}

void Simulation::post(TimePoint at, EventKind kind, int32_t index, uint64_t value) {
  static_assert(sizeof(Event) <= 40);
  events_.push({at, events_posted_++, kind, index, value});
}

void Simulation::fetch_ahead(const Event& next) const {
  if (next.kind != EventKind::kStepEnd) return;
  const Node& node = nodes_[static_cast<size_t>(next.index)];
  if (node.engine == nullptr) return;
  const RequestId id = node.engine->fetch_ahead();
  if (id == 0 || Handovers::is_one(id)) return;
  const auto* const sim_request =
      reinterpret_cast<const char*>(&requests_[static_cast<size_t>(id & 0xffffffff)]);
  for (size_t line = 0; line < kTokenBytes; line += 64) __builtin_prefetch(sim_request + line);
}

void Simulation::handle(const Event& event) {
  switch (event.kind) {
    case EventKind::kDeliver:
      deliver(event.value);
      return;
    case EventKind::kStepEnd:
      if (nodes_[static_cast<size_t>(event.index)].life == event.value &&
          nodes_[static_cast<size_t>(event.index)].step_end == event.at)
        end_step(event.index);
      return;
    case EventKind::kResidency:
      if (nodes_[static_cast<size_t>(event.index)].life == event.value) deliver_residency(event.index);
      return;
    case EventKind::kReports:
      reports(event.index);
      post(now_ + millis(options_.report_ms), EventKind::kReports, event.index);
      return;
    case EventKind::kGossip:
      gossip();
      post(now_ + millis(options_.gossip_ms), EventKind::kGossip);
      return;
    case EventKind::kPlan:
      plan();
      post(now_ + options_.router.planner.tick, EventKind::kPlan);
      return;
    case EventKind::kSecond:
      second_over();
      post(now_ + std::chrono::seconds(1), EventKind::kSecond);
      return;
    case EventKind::kDetect:
      detect(event.index, event.value);
      return;
    case EventKind::kSilent:
      silent(event.value, event.index);
      return;
    case EventKind::kProbe:
      prober_.tick(static_cast<route::NodeIndex>(event.index), event.value, now_);
      return;
    case EventKind::kSeen:
      if (nodes_[static_cast<size_t>(event.index)].life != event.value) return;  // it has died again
      if (nodes_[static_cast<size_t>(event.index)].drains) return;               // its probes say so
      for (auto& gateway : gateways_)
        gateway->on_event(static_cast<route::NodeIndex>(event.index), route::HealthEvent::kProbeOk, now_);
      return;
    case EventKind::kHandover:
      hand_over();
      return;
    case EventKind::kQueue:
      admission_.on_time(static_cast<size_t>(event.index), event.value, now_);
      return;
    case EventKind::kFault:
      begin_fault(options_.faults[static_cast<size_t>(event.index)]);
      if (options_.faults[static_cast<size_t>(event.index)].for_s > 0) {
        post(now_ + millis(options_.faults[static_cast<size_t>(event.index)].for_s * 1e3),
             EventKind::kFaultEnd, event.index);
      }
      return;
    case EventKind::kFaultEnd:
      end_fault(options_.faults[static_cast<size_t>(event.index)]);
      return;
  }
}

StatusOr<Result> simulate(RequestSource& source, const SimulationOptions& options) {
  return Simulation(source, options).run();
}

}  // namespace troupe::sim
