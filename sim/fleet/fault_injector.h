#pragma once

// Faults as they come due, and what they do to workers, gateways and the requests there.

#include "sim/fleet/event_queue.h"
#include "sim/fleet/faults.h"
#include "sim/fleet/handover_driver.h"
#include "sim/fleet/recorder.h"
#include "sim/fleet/request_driver.h"
#include "sim/fleet/residency_reports.h"
#include "sim/fleet/sim_fleet.h"
#include "sim/fleet/sim_gateways.h"
#include "sim/fleet/simulation_options.h"
#include "sim/fleet/stream_watch.h"

namespace troupe::sim {

class FaultInjector {
 public:
  struct Parts {  // all outlive it
    const SimulationOptions& options;
    EventQueue& events;
    SimFleet& fleet;
    ResidencyReports& residency;
    SimGateways& gateways;
    StreamWatch& streams;
    RequestDriver& requests;
    HandoverDriver& handover;
    Recorder& recorder;
  };
  explicit FaultInjector(const Parts& parts) : parts_(parts) {}

  // Posts every fault of the options.
  void post_all();
  // A kFault, a kFaultEnd.
  void begin(size_t fault);
  void end(size_t fault);
  // Nodes that drain and have left are gone.
  void stop_drained();

 private:
  void apply(const Fault& fault);
  void kill(route::NodeIndex node);
  void restart(route::NodeIndex node);
  void join(int32_t count);
  void drain(route::NodeIndex node, TimePoint until);
  void end_stall(route::NodeIndex node);
  void restart_gateway(size_t gateway);
  void pool_changed();

  Parts parts_;
};

}  // namespace troupe::sim
