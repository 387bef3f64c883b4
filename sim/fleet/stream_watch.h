#pragma once

// Answers between their first and last token, of which the driver of requests is not called: how far they
// have come, and when a gateway is to ask whether a silent one hangs (gateway/route/request/stall.h).

#include "sim/fleet/event_queue.h"
#include "sim/fleet/request_table.h"
#include "sim/fleet/sim_fleet.h"
#include "sim/fleet/simulation_options.h"

namespace troupe::sim {

class StreamWatch {
 public:
  // All outlive it.
  StreamWatch(const SimulationOptions& options, EventQueue& events, const SimFleet& fleet,
              RequestTable& requests)
      : options_(options), events_(events), fleet_(fleet), requests_(requests) {}

  // Brings the request's figures up to now, if its node has it still.
  void note_progress(SimRequest& request) const;
  // All that are there, before the node stops.
  void note_progress_at(route::NodeIndex node) const;
  // Posts the kSilent of a request whose node stands still. `received`: the time of the last byte that the
  // node has sent, or of the request's own.
  void watch(const SimRequest& request, TimePoint received);
  // The node's streams bring nothing from now on, not even heartbeats: their last bytes were tokens or these.
  void watch_all_at(route::NodeIndex node);

 private:
  const SimulationOptions& options_;
  EventQueue& events_;
  const SimFleet& fleet_;
  RequestTable& requests_;
};

}  // namespace troupe::sim
