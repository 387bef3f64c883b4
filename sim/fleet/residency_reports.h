#pragma once

// The nodes' residency events on their way to the gateways, which share one index of them: each node's arrive
// in order, after the options' delay; one may be lost, and the gap is answered with a snapshot. As
// worker/engine/residency_publisher and gateway/cluster/residency_reader, over a connection that takes time.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "gateway/route/fleet/residency_feed.h"
#include "gateway/route/policy/cluster_state.h"
#include "sim/fleet/event_queue.h"
#include "sim/fleet/sim_fleet.h"
#include "sim/fleet/simulation_options.h"

namespace troupe::sim {

class ResidencyReports {
 public:
  // `options`, `events` and `fleet` outlive it. The fleet's nodes begin empty.
  ResidencyReports(const SimulationOptions& options, EventQueue& events, const SimFleet& fleet);

  bool enabled() const { return enabled_; }
  const std::shared_ptr<route::ExactResidency>& residency() const { return residency_; }

  // A cache that begins: the first thing a worker's stream says. From then on its word counts, not what was
  // placed there.
  void begin_empty(route::NodeIndex node);
  // At the end of a step: what it changed travels to the gateways.
  void report(route::NodeIndex node);
  // A kResidency.
  void deliver(route::NodeIndex node, uint64_t incarnation);
  // A gateway has seen a gap and asks. The answer includes all events so far, those on the way too.
  void send_snapshot(route::NodeIndex node);
  void lose_next(route::NodeIndex node) { streams_[node].lose_next = true; }
  void node_stopped(route::NodeIndex node);

 private:
  struct Batch {
    route::ResidencyEvent::Kind kind;
    uint64_t epoch = 0, seq = 0;
    std::vector<route::ResidencyItem> items;
  };
  struct Stream {
    uint64_t seq = 0;
    bool lose_next = false;
    std::deque<Batch> on_the_way;
    TimePoint due{};  // of the last of them
  };
  void send(route::NodeIndex node, Batch batch, Duration delay);
  void deliver_next(route::NodeIndex node);

  const SimulationOptions& options_;
  EventQueue& events_;
  const SimFleet& fleet_;
  const bool enabled_;
  std::shared_ptr<route::ExactResidency> residency_;
  std::vector<Stream> streams_;  // by node
  std::vector<Resident> changes_;
};

}  // namespace troupe::sim
