#pragma once

// Probes on the virtual clock: each gateway probes each node by the live gateway's schedule. A node that is
// up answers in a round trip, one that is down refuses in the same time, and one that hangs answers when it
// goes on, unless the probe's timeout is over before.

#include <cstdint>
#include <functional>
#include <vector>

#include "gateway/route/fleet/probe_schedule.h"
#include "gateway/route/fleet/view.h"
#include "sim/fleet/event_queue.h"

namespace troupe::sim {

class SimProber {
 public:
  // The rest of the simulation, as probes meet it.
  struct Surroundings {
    // A node as it is; `hangs_until`: not later than now where it does not.
    struct Stand {
      bool up = true;
      TimePoint hangs_until{};
    };
    std::function<Stand(route::NodeIndex node)> stand;
    // A probe has ended. What the answer says is the node's.
    std::function<void(size_t gateway, route::NodeIndex node, bool answered)> saw;
  };
  struct Fleet {
    route::ProbeOptions probe;
    size_t gateways = 1;
    Duration round_trip{};  // to a node and back
  };
  // `events` outlives it.
  SimProber(const Fleet& fleet, EventQueue& events, Surroundings surroundings);

  // Every gateway probes the nodes from `first` up to `end` from now on; the first time within an interval,
  // each of them at a time of its own, as gateways start when they do.
  void begin(size_t first, size_t end);
  // A request of the gateway waits to know whether the node lives.
  void ask(size_t gateway, route::NodeIndex node);
  // A kProbe.
  void tick(route::NodeIndex node, uint64_t tag);

 private:
  // The lowest bits of a tag; the rest is the gateway.
  enum class Phase : uint64_t { kDue, kAnswered, kFailed };
  static constexpr int kPhaseBits = 2;
  void post(TimePoint at, size_t gateway, route::NodeIndex node, Phase phase);
  void send(size_t gateway, route::NodeIndex node);
  void ended(size_t gateway, route::NodeIndex node, bool answered);
  route::ProbeSchedule& schedule(size_t gateway, route::NodeIndex node) { return schedules_[gateway][node]; }

  Fleet fleet_;
  EventQueue& events_;
  Surroundings surroundings_;
  std::vector<std::vector<route::ProbeSchedule>> schedules_;  // by gateway, by node
};

}  // namespace troupe::sim
