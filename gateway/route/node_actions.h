#pragma once

// The router's part of a NodeRegistry's actions. Each driver performs it by this, besides what is its own:
// connections and metrics (gateway/cluster/fleet), shared residency (sim/fleet/sim_gateway).

#include "gateway/route/fleet/node_registry.h"
#include "gateway/route/router.h"

namespace troupe::route {

// Performs kForget, kStay and kAdopt at the router. False: the action is none of these.
bool perform(Router& router, const NodeAction& action);

}  // namespace troupe::route
