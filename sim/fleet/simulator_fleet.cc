// Messages from nodes to gateways while a simulation runs, and faults.

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/settings/option_checks.h"
#include "sim/fleet/simulation.h"

namespace troupe::sim {

namespace {

std::unique_ptr<SimNode> new_engine(const SimulationOptions& options) {
  return std::make_unique<SimNode>(options.profile, options.scheduler);
}

}  // namespace

void Simulation::add_node() {
  nodes_.emplace_back().engine = new_engine(options_);
  report_empty(static_cast<int32_t>(nodes_.size()) - 1);
}

bool Simulation::nodes_report() const {
  const route::Mode mode = options_.router.affinity.mode;
  return mode != route::Mode::kGossip && mode != route::Mode::kPlan;  // these stand for workers that do not
}

// A cache that begins: the first thing a worker's stream says. From then on its word counts, not what was
// placed there.
void Simulation::report_empty(int32_t index) {
  if (!nodes_report()) return;
  route::ResidencyEvent event;
  event.kind = route::ResidencyEvent::Kind::kSnapshot;
  event.epoch = nodes_[static_cast<size_t>(index)].life;
  residency_->apply(static_cast<route::NodeIndex>(index), event);
}

// At the end of a step: what it changed travels to the gateways.
void Simulation::report_residency(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  changes_.clear();
  node.engine->take_changes(changes_);
  if (changes_.empty() || !nodes_report()) return;
  // One event reports growth or shrinking, as on the wire.
  for (const bool grew : {true, false}) {
    ResidencyBatch batch;
    batch.kind = grew ? route::ResidencyEvent::Kind::kAdmitted : route::ResidencyEvent::Kind::kEvicted;
    for (const Resident& change : changes_) {
      if (change.grew != grew) continue;
      batch.items.push_back({change.name, change.kind, change.tokens});
    }
    if (batch.items.empty()) continue;
    batch.epoch = node.life;
    batch.seq = ++node.residency_seq;
    if (node.lose_next_residency) {
      node.lose_next_residency = false;
      continue;
    }
    send_residency(index, std::move(batch), millis(options_.residency_delay_ms));
  }
}

// In order: what is sent later comes no earlier.
void Simulation::send_residency(int32_t index, ResidencyBatch batch, Duration delay) {
  Node& node = nodes_[static_cast<size_t>(index)];
  node.residency_due = std::max(node.residency_due, now_ + delay);
  node.on_the_way.push_back(std::move(batch));
  if (node.residency_due > now_) {
    for (const route::ResidencyItem& item : node.on_the_way.back().items)
      residency_->index.prefetch(item.key);
    post(node.residency_due, EventKind::kResidency, index, node.life);
  } else {
    deliver_residency(index);
  }
}

void Simulation::deliver_residency(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  const ResidencyBatch batch = std::move(node.on_the_way.front());
  node.on_the_way.pop_front();
  const route::ResidencyEvent event{batch.kind, batch.epoch, batch.seq, batch.items};
  const auto result = residency_->apply(static_cast<route::NodeIndex>(index), event);
  if (result == route::FeedResult::kGap) send_snapshot(index);
}

// A gateway saw a gap and asked: the answer includes all events so far, those on the way too.
void Simulation::send_snapshot(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  if (node.engine == nullptr) return;
  std::vector<Resident> all;
  node.engine->snapshot(all);
  ResidencyBatch batch;
  batch.kind = route::ResidencyEvent::Kind::kSnapshot;
  batch.epoch = node.life;
  batch.seq = node.residency_seq;
  for (const Resident& r : all) {
    batch.items.push_back({r.name, r.kind, r.tokens});
  }
  send_residency(index, std::move(batch), millis(2 * options_.residency_delay_ms));
}

// Every gateway asks every node at a time of its own within the interval, as live ones do: if all learned at
// once, they would all send to the same idle node until the next time.
void Simulation::reports(int32_t slot) {
  for (size_t g = 0; g < gateways_.size(); ++g) {
    // Where (11 n + 5 g) mod 16 is the slot: neighbours are apart, and no slot is crowded. 3 is 11's inverse.
    static_assert(kReportSlots == 16);
    const size_t first = 3 * (static_cast<size_t>(slot) + 11 * g) % kReportSlots;
    for (size_t n = first; n < nodes_.size(); n += kReportSlots) {
      const Node& node = nodes_[n];
      if (node.engine == nullptr || now_ < node.reports_lost_until || now_ < node.stalled_until) continue;
      node.engine->catch_up(now_);
      gateways_[g]->saw_life(static_cast<route::NodeIndex>(n), node.life, now_);
      gateways_[g]->router().report(static_cast<route::NodeIndex>(n), node.engine->report(), now_);
    }
  }
}

void Simulation::second_over() {
  std::vector<Recorder::NodeStand> stands;
  stands.reserve(nodes_.size());
  for (const Node& node : nodes_) {
    Recorder::NodeStand stand;
    stand.alive = node.engine != nullptr;
    if (stand.alive) {
      node.engine->catch_up(now_);
      const SchedulerStats& stats = node.engine->stats();
      stand.work_tokens = node.engine->work_tokens();
      stand.running = stats.running;
      stand.waiting = stats.waiting;
      stand.preemptions = stats.preemptions_total;
      stand.kv_used =
          static_cast<float>(stats.blocks_used) / static_cast<float>(std::max(stats.blocks_total, 1));
    }
    stands.push_back(stand);
  }
  recorder_.second_over(seconds_done_++, stands);
}

void Simulation::begin_fault(const Fault& fault) {
  recorder_.fault(now_.time_since_epoch());
  const auto target = static_cast<size_t>(fault.target);
  const TimePoint until = now_ + millis(fault.for_s * 1e3);
  switch (fault.kind) {
    case Fault::Kind::kKill:
      kill(fault.target);
      return;
    case Fault::Kind::kReturn:
      nodes_[target].engine = new_engine(options_);
      nodes_[target].answers_from = now_ + millis(options_.join_ms);
      pool_changed();
      report_empty(fault.target);
      post(now_ + millis(options_.join_ms), EventKind::kSeen, fault.target, nodes_[target].life);
      return;
    case Fault::Kind::kJoin:
      for (int32_t i = 0; i < fault.target; ++i) add_node();
      pool_changed();
      prober_.begin(nodes_.size() - target, nodes_.size(), now_);
      for (auto& gateway : gateways_) gateway->add_nodes(fault.target, now_);
      return;
    case Fault::Kind::kDrain:
      nodes_[target].engine->catch_up(now_);
      nodes_[target].drains = true;
      for (auto& gateway : gateways_) gateway->saw_notice(static_cast<route::NodeIndex>(target), until, now_);
      keep_handing_over();
      return;
    case Fault::Kind::kSlow:
      if (nodes_[target].engine == nullptr) return;
      interrupt(fault.target);
      nodes_[target].engine->set_slowdown(fault.factor);
      return;
    case Fault::Kind::kStall:
      stall(fault.target, until);
      return;
    case Fault::Kind::kLoseReports:
      nodes_[target].reports_lost_until = until;
      return;
    case Fault::Kind::kLoseResidency:
      nodes_[target].lose_next_residency = true;
      return;
    case Fault::Kind::kRestartGateway:
      std::erase_if(leaving_, [target](const Handovers::Leaving& l) { return l.gateway == target; });
      gateways_[target]->restart(now_);
      gateway_lives_[target] += 1;
      admission_.restart(target, now_);
      return;
  }
}

void Simulation::end_fault(const Fault& fault) {
  Node& node = nodes_[static_cast<size_t>(fault.target)];
  if (node.engine == nullptr) return;
  if (fault.kind == Fault::Kind::kDrain) return kill(fault.target);
  if (fault.kind == Fault::Kind::kStall) return end_stall(fault.target);
  interrupt(fault.target);
  if (fault.kind == Fault::Kind::kSlow) node.engine->set_slowdown(1);
}

// By age, so that no request overtakes another.
std::vector<Simulation::SimRequest*> Simulation::requests_at(int32_t index, uint64_t life) {
  std::vector<SimRequest*> there;
  for (SimRequest& sim_request : requests_) {
    if (sim_request.id != 0 && sim_request.node == index && sim_request.at_node &&
        sim_request.node_life == life)
      there.push_back(&sim_request);
  }
  std::sort(there.begin(), there.end(),
            [](const SimRequest* a, const SimRequest* b) { return a->id < b->id; });
  return there;
}

// How far its stream has come. REQUIRES: its node has caught up.
void Simulation::note_progress(SimRequest& sim_request) const {
  if (!sim_request.taken_at) return;
  const Node& node = nodes_[static_cast<size_t>(sim_request.node)];
  if (node.engine == nullptr || sim_request.node_life != node.life) return;
  node.engine->catch_up(now_);
  const SimNode::Progress progress = node.engine->progress(sim_request.id);
  if (progress.tokens == 0) return;
  sim_request.emitted += progress.tokens - sim_request.here;
  sim_request.here = progress.tokens;
  sim_request.gaps.last_token = progress.last + millis(options_.network_ms);
  sim_request.gaps.longest = std::max(sim_request.gaps.longest, progress.longest_gap);
}

// The bound has as much memory as the nodes that are up.
void Simulation::pool_changed() {
  const auto up =
      std::count_if(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.engine != nullptr; });
  recorder_.pool_changed(up * options_.profile.kv_cache_tokens);
}

void Simulation::kill(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  for (SimRequest* sim_request : requests_at(index, node.life)) note_progress(*sim_request);
  node.engine = nullptr;
  node.drains = false;
  node.stalled_until = {};
  node.undelivered.clear();
  node.given_up.clear();
  nothing_ahead_at(index);
  pool_changed();
  node.on_the_way.clear();
  node.residency_due = {};
  node.residency_seq = 0;
  post(now_ + millis(options_.detect_ms), EventKind::kDetect, index, node.life);
  node.life += 1;
}

// Started streams end or go on elsewhere, the others are sent again.
void Simulation::detect(int32_t index, uint64_t life) {
  for (SimRequest* sim_request : requests_at(index, life)) {
    const bool started = sim_request->emitted > 0;
    fail(*sim_request, {started ? route::FailureKind::kBody : route::FailureKind::kTransport, 0});
  }
}

// The node's streams bring nothing from now on, not even heartbeats: their last bytes were tokens or these.
void Simulation::stall(int32_t index, TimePoint until) {
  constexpr Duration kHeartbeatAfter = std::chrono::milliseconds(80);  // worker/http/response_stream.cc's
  Node& node = nodes_[static_cast<size_t>(index)];
  const bool hangs = now_ < node.stalled_until;
  node.stalled_until = std::max(node.stalled_until, until);
  if (hangs || node.engine == nullptr) return;
  node.stalls += 1;
  interrupt(index);
  for (SimRequest* sim_request : requests_at(index, node.life)) {
    note_progress(*sim_request);
    const TimePoint token =
        sim_request->here > 0 ? sim_request->gaps.last_token - millis(options_.network_ms) : TimePoint{};
    const TimePoint received = std::max(sim_request->taken_at.value_or(TimePoint{}), token);
    watch_silence(*sim_request, now_ - (now_ - received) % kHeartbeatAfter);
  }
}

void Simulation::end_stall(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  if (now_ < node.stalled_until) return;  // by another fault
  interrupt(index);
  if (!node.engine->stepping()) node.drop_given_up();
  for (const uint64_t id : std::exchange(node.undelivered, {})) deliver(id);
  kick(index);
}

// As a worker does that sees the connections closed.
void Simulation::Node::drop_given_up() {
  for (const RequestId id : std::exchange(given_up, {})) engine->cancel(id);
}

void Simulation::saw_probe(size_t g, int32_t index, bool answered) {
  SimGateway& gateway = *gateways_[g];
  const auto node = static_cast<route::NodeIndex>(index);
  if (!answered || nodes_[node].engine == nullptr)
    return gateway.on_event(node, route::HealthEvent::kProbeFail, now_);
  if (nodes_[node].drains) {  // notice of it was taken when it began
    if (!gateway.leaving(node)) gateway.on_event(node, route::HealthEvent::kProbeNotReady, now_);
    return;
  }
  const bool was_routable = gateway.router().view().routable(node);
  gateway.on_event(node, route::HealthEvent::kProbeOk, now_);
  if (was_routable || !gateway.router().view().routable(node)) return;
  if (nodes_report()) send_snapshot(index);  // of a node that hung: what it holds was forgotten
}

// Sums of `count` nodes, in one walk along all requests.
std::vector<NodeSums> Simulation::sums_of(size_t first_node, size_t count) const {
  std::vector<NodeSums> sums(count);
  for (const SimRequest& sim_request : requests_) {
    if (sim_request.id == 0 || !sim_request.taken_at) continue;
    const auto node = static_cast<size_t>(sim_request.node);
    if (node < first_node || node >= first_node + count || sim_request.node_life != nodes_[node].life)
      continue;
    sums[node - first_node].sent += 1;
  }
  for (size_t i = 0; i < count; ++i) {
    const SimNode* const engine = nodes_[first_node + i].engine.get();
    if (engine == nullptr) continue;
    sums[i].sent += static_cast<int64_t>(nodes_[first_node + i].given_up.size());
    sums[i].held = engine->count_of([](RequestId id) { return !Handovers::is_one(id); });
  }
  return sums;
}

// Requests and tokens of the whole fleet, requests and blocks of `count` nodes.
void Simulation::check_conservation(size_t first_node, size_t count) const {
  RequestSums sums = sums_;
  sums.on_their_way = static_cast<int64_t>(requests_.size() - free_slots_.size());
  if (const Status status = check(sums); !status.ok()) conservation_broken(to_std(status.message()));
  const std::vector<NodeSums> of_nodes = sums_of(first_node, count);
  for (size_t n = first_node; n < first_node + count; ++n) {
    if (nodes_[n].engine == nullptr) continue;
    if (const Status status = check(of_nodes[n - first_node]); !status.ok())
      conservation_broken(to_std(status.message()));
    const SimNode& engine = *nodes_[n].engine;
    if (const Status status = check(engine.prompt_sums()); !status.ok())
      conservation_broken(to_std(status.message()));
    if (const Status status = engine.verify(); !status.ok()) conservation_broken(to_std(status.message()));
  }
}

}  // namespace troupe::sim
