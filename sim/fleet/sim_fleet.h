#pragma once

// The simulated workers: each a place whose process dies, comes back, stands still and drains, and the steps
// of those that run. Tokens of a step go to Simulation, which asks for them when the step's end is due.

#include <cstdint>
#include <memory>
#include <vector>

#include "gateway/route/fleet/view.h"
#include "sim/fleet/event_queue.h"
#include "sim/fleet/node.h"
#include "sim/fleet/recorder.h"
#include "sim/fleet/simulation_options.h"

namespace troupe::sim {

// `engine` is to be caught up, added to and asked by any part; all else is changed by SimFleet alone.
struct FleetNode {
  std::unique_ptr<SimNode> engine;  // null while dead
  uint64_t incarnation = 1;         // of its process
  bool drains = false;              // it is gone once it has answered all
  TimePoint stalled_until{}, reports_lost_until{};
  int32_t stalls = 0;                 // so far
  std::vector<uint64_t> undelivered;  // requests that reached it while it stands still
  std::vector<RequestId> given_up;    // it has them still, and their gateways have turned away from it
  TimePoint answers_from{};           // probes, after it has come back
  TimePoint step_end{};               // that is expected
};

class SimFleet {
 public:
  // `options` and `events` outlive it.
  SimFleet(const SimulationOptions& options, EventQueue& events);

  size_t size() const { return nodes_.size(); }
  const FleetNode& operator[](size_t node) const { return nodes_[node]; }
  bool stands_still(route::NodeIndex node) const { return events_.now() < nodes_[node].stalled_until; }
  // Nodes whose process runs.
  int64_t up() const;

  // Plans the node's next step, unless one runs or it stands still. REQUIRES, as for the next four: it is up.
  void begin_step(route::NodeIndex node);
  // Before something happens to a node that its next steps hang on.
  void interrupt(route::NodeIndex node);
  // A kStepEnd: whether tokens are to be taken, with end_step().
  bool step_ends(route::NodeIndex node, uint64_t incarnation);
  // Valid until its next step ends.
  const std::vector<SimNode::Token>& end_step(route::NodeIndex node);
  // As a worker does that sees the connections closed. REQUIRES: no step runs.
  void drop_given_up(route::NodeIndex node);

  // A gateway has turned away from a request that the node has.
  void give_up(route::NodeIndex node, RequestId id) { nodes_[node].given_up.push_back(id); }
  // A request reaches a node that stands still; stall_ends() hands them out.
  void hold_undelivered(route::NodeIndex node, uint64_t id) { nodes_[node].undelivered.push_back(id); }

  void join();  // a new one
  void stop(route::NodeIndex node);
  void restart(route::NodeIndex node);
  void drain(route::NodeIndex node);
  void slow_down(route::NodeIndex node, double factor);
  // False: it stands still already, or is dead.
  bool stall(route::NodeIndex node, TimePoint until);
  // The requests to deliver to it now. REQUIRES: it stands still no longer, and is interrupted.
  std::vector<uint64_t> stall_ends(route::NodeIndex node);
  void lose_reports(route::NodeIndex node, TimePoint until) { nodes_[node].reports_lost_until = until; }

  // All nodes as they are now, caught up.
  std::vector<Recorder::NodeStand> stands() const;

 private:
  std::unique_ptr<SimNode> new_engine() const;
  void expect_step_end(route::NodeIndex node, TimePoint at);

  const SimulationOptions& options_;
  EventQueue& events_;
  std::vector<FleetNode> nodes_;
};

}  // namespace troupe::sim
