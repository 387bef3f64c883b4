#pragma once

// Has pinned prefixes computed anew where the worker that held one died, or began again with an empty cache:
// one at a time, at the worker that its requests would go to (route/placement/pin_registry.h says which are
// lost). Without a store it imports what the workers have pinned: at its start, and what other gateways pin
// (route/placement/pin_importer.h). Of gateways that share their pins (pin_store.h) each sees to a part.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/task_group.h"
#include "gateway/cluster/fleet.h"
#include "gateway/route/fleet/gateway_shard.h"
#include "gateway/route/placement/pin_importer.h"
#include "gateway/route/placement/pin_registry.h"

namespace troupe {

class PinReconciler {
 public:
  struct Parts {
    Executor executor;
    Fleet& fleet;
    route::Router& router;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  PinReconciler(const route::PinOptions& options, const Parts& parts);

  // One endless task in `group`.
  void start(TaskGroup& group);
  route::PinRegistry& registry() { return registry_; }
  // A pin of another gateway's.
  void adopt(route::Pin pin);
  // From now on pins that workers list, and that are not known here, are imported (pin_importer.h).
  // `ownerless`: those without an owner, else those with one. Called before start(), where no store has them.
  void import_from_workers(bool ownerless);
  // The nodes that hold the pin, for other gateways.
  std::vector<route::Pin::Claim> claims_of(const route::Pin& pin) const;

  // The salt of requests of this owner (PinOptions::salted); nullopt: the owner is not known here, and its
  // pins are not computed. Set where there are tenants.
  std::function<std::optional<std::string>(const std::string& owner)> salt_of;
  // This gateway's part of the pins; empty: all.
  std::function<route::GatewayShard()> shard;

 private:
  bool holds(const route::Pin::Place& place) const;
  bool is_ours(const route::Pin& pin) const;
  route::Pin::Place place_of(const route::Pin::Claim& claim) const;
  std::optional<std::string> body_of(const route::Pin& pin) const;
  Task<void> run();
  Task<void> reconcile();
  bool is_due(route::NodeIndex node) const;
  Task<void> reconcile_node(route::NodeIndex node);
  Task<void> remove_at(route::NodeIndex node, Hash128 prefix, std::string owner);
  Task<void> compute(route::Pin pin);
  route::NodeIndex target_of(const route::Pin& pin);

  const Parts parts_;
  route::PinRegistry registry_;
  std::unique_ptr<route::PinImporter> importer_;  // null: nothing is imported
  bool takes_ownerless_ = false;
  struct Listing {
    uint32_t incarnation = 0;  // of the node's cache then
    TimePoint at{};
  };
  std::vector<std::optional<Listing>> listings_;  // the last one, by node
  Gauge& kept_;
  Counter& computed_;
  Counter& failed_;
};

}  // namespace troupe
