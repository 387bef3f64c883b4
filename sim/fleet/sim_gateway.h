#pragma once

// One gateway of the simulated fleet: a real router, the health of every node as this gateway sees it, and
// its retry budget. The cluster's view is made anew whenever a node's state changes, as a live gateway does.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/route/fleet/health.h"
#include "gateway/route/request/request_flow.h"
#include "gateway/route/request/retry.h"
#include "gateway/route/router.h"

namespace troupe::sim {

inline constexpr char kModel[] = "model";

class SimGateway final : public route::NodeSignals {
 public:
  struct Options {
    route::RouterOptions router;
    route::RetryOptions retry;
    int32_t nodes = 0;
    uint64_t seed = 0;
    std::shared_ptr<route::ExactResidency> residency;  // shared by all gateways; they would all hold the same
    Duration ramp{};                                   // zero: nodes take all of their share at once
    route::StallOptions stall{};
  };
  SimGateway(const Options& options, TimePoint now);

  route::Router& router() { return *router_; }
  // The surroundings in which a request's flow decides.
  route::FlowContext flow_context() { return {*router_, retry_budget_, *this, options_.stall}; }
  // Nodes are known alive from here on.
  void add_nodes(int32_t count, TimePoint now);
  // The node has an empty cache: its share rises from here on, if there are sets elsewhere.
  void begins_empty(route::NodeIndex node, TimePoint now);
  // Some node's share still rises. Asked now and then while so.
  bool ramp(TimePoint now);
  // The node is asked to go: what it has moves, while it is not asked for more (route/handover.h). Then
  // left().
  void begin_leaving(route::NodeIndex node);
  bool leaving(route::NodeIndex node) const { return leaving_[node]; }
  void left(route::NodeIndex node, TimePoint now);
  // What a probe or a request saw.
  void on_event(route::NodeIndex node, route::HealthEvent event, TimePoint now) override;
  route::NodeStanding standing(route::NodeIndex node) const override;
  void saw_heartbeat(route::NodeIndex) override {}  // every node sends them
  void probe(route::NodeIndex node, TimePoint) override {
    if (on_suspicion) on_suspicion(node);
  }
  // Called when a failure asks for a probe at once; set by what drives the probes.
  std::function<void(route::NodeIndex)> on_suspicion;
  // Its own sample of the sets' loads, for the others to plan from; empty: that was taken already.
  std::string take_sample();
  // Forgets all it knew but the nodes.
  void restart(TimePoint now);

 private:
  void begin_life();
  void publish();

  Options options_;
  std::unique_ptr<route::Router> router_;
  route::RetryBudget retry_budget_;
  std::vector<route::NodeHealth> health_;
  std::vector<double> weights_;                  // by node
  std::vector<bool> leaving_;                    // by node
  std::map<route::NodeIndex, TimePoint> ramps_;  // since when
  uint64_t view_epoch_ = 0;
  uint64_t lives_ = 0;
  uint64_t samples_taken_ = 0;
};

}  // namespace troupe::sim
