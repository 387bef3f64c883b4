#pragma once

// All gateways of the simulated fleet and what they do in rounds, whether requests come or not: load reports
// are read, nodes probed, placements gossiped, the table planned.

#include <cstdint>
#include <memory>
#include <vector>

#include "gateway/route/fleet/set_stats.h"
#include "sim/fleet/event_queue.h"
#include "sim/fleet/residency_reports.h"
#include "sim/fleet/sim_fleet.h"
#include "sim/fleet/sim_gateway.h"
#include "sim/fleet/sim_prober.h"
#include "sim/fleet/simulation_options.h"
#include "sim/workload/distributions.h"

namespace troupe::sim {

class SimGateways {
 public:
  struct Parts {  // all outlive it
    const SimulationOptions& options;
    EventQueue& events;
    const SimFleet& fleet;
    ResidencyReports& residency;
  };
  // Each gateway's seed is drawn from `seeds`.
  SimGateways(const Parts& parts, Draw& seeds);
  SimGateways(const SimGateways&) = delete;
  SimGateways& operator=(const SimGateways&) = delete;

  size_t size() const { return gateways_.size(); }
  SimGateway& operator[](size_t gateway) { return *gateways_[gateway]; }

  // Posts the first of all rounds; each round posts its next.
  void begin_rounds();
  void reports_round(int32_t slot);
  void gossip_round();
  void plan_round();
  void probe(route::NodeIndex node, uint64_t tag) { prober_.tick(node, tag); }

  // The fleet's last `count` nodes have joined, and their first probe has found them ready.
  void nodes_joined(int32_t count);
  // A node has come back; not if it has died again since.
  void node_returned(route::NodeIndex node, uint64_t incarnation);
  void node_gives_notice(route::NodeIndex node, TimePoint until);

 private:
  static constexpr int32_t kReportSlots = 16;  // of a report interval
  SimProber::Surroundings prober_surroundings();
  void probed(size_t gateway, route::NodeIndex node, bool answered);

  Parts parts_;
  SimProber prober_;
  route::SetLoadMerger set_loads_;
  std::vector<std::unique_ptr<SimGateway>> gateways_;
};

}  // namespace troupe::sim
