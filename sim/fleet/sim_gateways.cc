#include "sim/fleet/sim_gateways.h"

#include <utility>

#include "common/settings/option_checks.h"
#include "gateway/route/gossip_rounds.h"
#include "sim/fleet/conservation.h"

namespace troupe::sim {

namespace {

route::GossipRules gossip_rules(const SimulationOptions& options) {
  route::GossipRules rules;
  rules.gateways = options.gateways;
  rules.ledger = options.router.affinity.peer_ledger;
  rules.interval = millis(options.gossip_ms);
  return rules;
}

}  // namespace

SimGateways::SimGateways(const Parts& parts, Draw& seeds)
    : parts_(parts),
      prober_({parts.options.probe, static_cast<size_t>(parts.options.gateways),
               2 * millis(parts.options.network_ms)},
              parts.events, prober_surroundings()),
      set_loads_(parts.options.router.planner.half_life, parts.options.router.memory.sets_max) {
  const SimulationOptions& options = parts.options;
  for (int32_t g = 0; g < options.gateways; ++g) {
    const SimGateway::Options gateway{.router = options.router,
                                      .retry = options.retry,
                                      .nodes = options.nodes,
                                      .seed = seeds.bits(),
                                      .residency = parts.residency.residency(),
                                      .ramp = millis(options.join_ramp_s * 1e3),
                                      .stall = options.stall,
                                      .gossip = gossip_rules(options),
                                      .gateways = static_cast<uint32_t>(options.gateways),
                                      .number = static_cast<uint32_t>(g)};
    gateways_.push_back(std::make_unique<SimGateway>(gateway, prober_, parts.events.now()));
  }
}

SimProber::Surroundings SimGateways::prober_surroundings() {
  return {.stand =
              [this](route::NodeIndex index) {
                const FleetNode& node = parts_.fleet[index];
                return SimProber::Surroundings::Stand{
                    node.engine != nullptr && parts_.events.now() >= node.answers_from, node.stalled_until};
              },
          .saw = [this](size_t gateway, route::NodeIndex node,
                        bool answered) { probed(gateway, node, answered); }};
}

void SimGateways::begin_rounds() {
  const SimulationOptions& options = parts_.options;
  EventQueue& events = parts_.events;
  prober_.begin(0, parts_.fleet.size());
  for (int32_t slot = 0; slot < kReportSlots; ++slot)
    events.post(events.now() + millis(options.report_ms * (slot + 1) / kReportSlots), EventKind::kReports,
                slot);
  if (gateways_.size() > 1) events.post(events.now() + millis(options.gossip_ms), EventKind::kGossip);
  events.post(events.now() + options.router.planner.tick, EventKind::kPlan);
}

// Every gateway asks every node at a time of its own within the interval, as live ones do: if all learned at
// once, they would all send to the same idle node until the next time.
void SimGateways::reports_round(int32_t slot) {
  const TimePoint now = parts_.events.now();
  for (size_t g = 0; g < gateways_.size(); ++g) {
    // Where (11 n + 5 g) mod 16 is the slot: neighbours are apart, and no slot is crowded. 3 is 11's inverse.
    static_assert(kReportSlots == 16);
    const size_t first = 3 * (static_cast<size_t>(slot) + 11 * g) % kReportSlots;
    for (size_t n = first; n < parts_.fleet.size(); n += kReportSlots) {
      const FleetNode& node = parts_.fleet[n];
      if (node.engine == nullptr || now < node.reports_lost_until || now < node.stalled_until) continue;
      node.engine->catch_up(now);
      gateways_[g]->saw_incarnation(static_cast<route::NodeIndex>(n), node.incarnation, now);
      gateways_[g]->router().report(static_cast<route::NodeIndex>(n), node.engine->report(), now);
    }
  }
  parts_.events.post(now + millis(parts_.options.report_ms), EventKind::kReports, slot);
}

// The driver of every gateway's GossipRounds. Messages arrive at once and none is lost.
void SimGateways::gossip_round() {
  const TimePoint now = parts_.events.now();
  for (auto& gateway : gateways_) gateway->gossip().collect(now);
  for (uint32_t g = 0; g < gateways_.size(); ++g) {
    route::GossipRounds& from = gateways_[g]->gossip();
    for (uint32_t other = 0; other < gateways_.size(); ++other) {
      if (other == g || from.next_check(other) > now || !from.send_due(other, now)) continue;
      route::GossipRounds& to = gateways_[other]->gossip();
      const auto taken = to.receive(from.begin(other, now), now);
      if (!taken.ok()) conservation_broken(to_std(taken.status().message()));
      from.answered(other, to.answer(), now);
    }
  }
  parts_.events.post(now + millis(parts_.options.gossip_ms), EventKind::kGossip);
}

// Plans from the fleet's loads: what nodes count, or else what gateways have sent.
void SimGateways::plan_round() {
  const TimePoint now = parts_.events.now();
  if (parts_.residency.enabled()) {
    std::vector<route::SetLoadMerger::Counter> counters;
    for (size_t n = 0; n < parts_.fleet.size(); ++n) {
      if (parts_.fleet[n].engine == nullptr) continue;
      counters.clear();
      parts_.fleet[n].engine->set_counters(counters);
      set_loads_.report(static_cast<uint32_t>(n), parts_.fleet[n].incarnation, kModel, counters);
    }
    const route::SetLoads loads = set_loads_.take(now);
    for (auto& gateway : gateways_) gateway->router().plan(now, loads);
  } else {
    for (auto& gateway : gateways_) gateway->router().plan(now);
  }
  parts_.events.post(now + parts_.options.router.planner.tick, EventKind::kPlan);
}

void SimGateways::probed(size_t g, route::NodeIndex node, bool answered) {
  const TimePoint now = parts_.events.now();
  SimGateway& gateway = *gateways_[g];
  if (!answered || parts_.fleet[node].engine == nullptr)
    return gateway.on_event(node, route::HealthEvent::kProbeFail, now);
  if (parts_.fleet[node].drains) {  // notice of it was taken when it began
    if (!gateway.leaving(node)) gateway.on_event(node, route::HealthEvent::kProbeNotReady, now);
    return;
  }
  const bool was_routable = gateway.router().view().routable(node);
  gateway.on_event(node, route::HealthEvent::kProbeOk, now);
  if (was_routable || !gateway.router().view().routable(node)) return;
  // It hung, and what it holds was forgotten.
  if (parts_.residency.enabled()) parts_.residency.send_snapshot(node);
}

void SimGateways::nodes_joined(int32_t count) {
  const TimePoint now = parts_.events.now();
  prober_.begin(parts_.fleet.size() - static_cast<size_t>(count), parts_.fleet.size());
  for (auto& gateway : gateways_) gateway->add_nodes(count, now);
}

void SimGateways::node_returned(route::NodeIndex node, uint64_t incarnation) {
  if (parts_.fleet[node].incarnation != incarnation) return;
  if (parts_.fleet[node].drains) return;  // its probes say so
  for (auto& gateway : gateways_) gateway->on_event(node, route::HealthEvent::kProbeOk, parts_.events.now());
}

void SimGateways::node_gives_notice(route::NodeIndex node, TimePoint until) {
  for (auto& gateway : gateways_) gateway->saw_notice(node, until, parts_.events.now());
}

}  // namespace troupe::sim
