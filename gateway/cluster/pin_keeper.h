#pragma once

// Has pinned prefixes computed anew where the worker that held one died, or began again with an empty cache:
// one at a time, at the worker that its requests would go to (route/placement/pin_book.h says which are
// lost). Of gateways that share their pins (pin_store.h) each sees to a part.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/task_group.h"
#include "gateway/cluster/fleet.h"
#include "gateway/route/fleet/gateway_shard.h"
#include "gateway/route/placement/pin_book.h"

namespace troupe {

class PinKeeper {
 public:
  struct Parts {
    Executor executor;
    Fleet& fleet;
    route::Router& router;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  PinKeeper(const route::PinOptions& options, const Parts& parts);

  // One endless task in `group`.
  void start(TaskGroup& group) { group.spawn(run()); }
  route::PinBook& book() { return book_; }
  // A pin of another gateway's.
  void adopt(route::Pin pin);
  // Where it is held, for other gateways.
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
  Task<void> compute(route::Pin pin);
  route::NodeIndex target_of(const route::Pin& pin);

  const Parts parts_;
  route::PinBook book_;
  Gauge& kept_;
  Counter& computed_;
  Counter& failed_;
};

}  // namespace troupe
