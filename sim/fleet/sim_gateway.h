#pragma once

// One gateway of the simulated fleet: a real router, a real registry of the nodes as this gateway sees them
// (route/fleet/node_registry.h), its side of the gossip, and its retry budget. Like gateway/cluster/fleet it
// feeds the registry and performs its actions; here both are calls on a virtual clock.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "gateway/route/fleet/node_registry.h"
#include "gateway/route/gossip_rounds.h"
#include "gateway/route/request/request_flow.h"
#include "gateway/route/request/retry.h"
#include "gateway/route/router.h"
#include "sim/fleet/sim_prober.h"

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
    route::GossipRules gossip{};
    uint32_t gateways = 1, number = 0;  // this one's among them
  };
  // `prober` outlives it.
  SimGateway(const Options& options, SimProber& prober, TimePoint now);

  route::Router& router() { return *router_; }
  // The other gateways are its peers, by their numbers.
  route::GossipRounds& gossip() { return *gossip_; }
  // The surroundings in which a request's flow decides.
  route::FlowContext flow_context() { return {*router_, retry_budget_, *this, options_.stall}; }
  // Nodes join, and their first probe has found them ready.
  void add_nodes(int32_t count, TimePoint now);
  // Some node's share still rises. Asked now and then while so.
  bool ramp(TimePoint now);
  // The node says that it goes: what it has moves, while it is not asked for more (route/handover.h). Then
  // handover_done().
  void saw_notice(route::NodeIndex node, TimePoint until, TimePoint now);
  bool leaving(route::NodeIndex node) const { return registry_.nodes()[node].leaving(); }
  void handover_done(route::NodeIndex node, TimePoint now) { perform(registry_.handover_done(node), now); }
  // The incarnation of the node's process, as its load report has it.
  void saw_incarnation(route::NodeIndex node, uint64_t incarnation, TimePoint now);
  // Probes and requests saw it.
  void on_event(route::NodeIndex node, route::HealthEvent event, TimePoint now) override;
  route::NodeStatus node_status(route::NodeIndex node) const override;
  void saw_heartbeat(route::NodeIndex) override {}  // every node sends them
  void probe(route::NodeIndex node, TimePoint) override { prober_.ask(options_.number, node); }
  // A node's sets are to be moved, or those that it lacks computed: set by HandoverDriver.
  std::function<void(route::NodeIndex, TimePoint until)> on_leaving;
  std::function<void(route::NodeIndex)> on_begins_empty;
  // Forgets all it knew but the nodes, its bookings too: a new incarnation.
  void restart(TimePoint now);
  uint64_t incarnation() const { return incarnation_; }

 private:
  void begin_incarnation(TimePoint now);
  route::NodeRegistry::Moment moment(TimePoint now) const;
  void perform(const route::NodeActions& actions, TimePoint now);

  Options options_;
  SimProber& prober_;
  std::unique_ptr<route::Router> router_;
  std::unique_ptr<route::GossipRounds> gossip_;
  uint64_t incarnation_ = 0;
  route::RetryBudget retry_budget_;
  route::NodeRegistry registry_;
};

}  // namespace troupe::sim
