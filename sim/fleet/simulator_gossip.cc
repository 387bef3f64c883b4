// Gossip of the simulated gateways, and the plans they make of it.

#include "common/settings/option_checks.h"
#include "gateway/route/gossip_rounds.h"
#include "sim/fleet/simulation.h"

namespace troupe::sim {

// The driver of every gateway's GossipRounds. Messages arrive at once and none is lost.
void Simulation::gossip() {
  for (auto& gateway : gateways_) gateway->gossip().collect(now_);
  for (uint32_t g = 0; g < gateways_.size(); ++g) {
    route::GossipRounds& from = gateways_[g]->gossip();
    for (uint32_t other = 0; other < gateways_.size(); ++other) {
      if (other == g || from.next_check(other) > now_ || !from.send_due(other, now_)) continue;
      route::GossipRounds& to = gateways_[other]->gossip();
      const auto taken = to.receive(from.begin(other, now_), now_);
      if (!taken.ok()) conservation_broken(to_std(taken.status().message()));
      from.answered(other, to.answer(), now_);
    }
  }
}

// Plans from the fleet's loads: what nodes count, or else what gateways have sent.
void Simulation::plan() {
  if (!nodes_report()) {
    for (auto& gateway : gateways_) gateway->router().plan(now_);
    return;
  }
  std::vector<route::SetLoadMerger::Counter> counters;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].engine == nullptr) continue;
    counters.clear();
    nodes_[n].engine->set_counters(counters);
    set_loads_.report(static_cast<uint32_t>(n), nodes_[n].life, kModel, counters);
  }
  const route::SetLoads loads = set_loads_.take(now_);
  for (auto& gateway : gateways_) gateway->router().plan(now_, loads);
}

}  // namespace troupe::sim
