#pragma once

// A Router's settings, and all that it knows of the fleet. Its parts work on the same.

#include "gateway/route/options.h"
#include "gateway/route/policy/cluster_state.h"

namespace troupe::route {

struct RouterCore {
  RouterOptions options;
  ClusterState known;
  bool shares_exact = false;  // known.exact is fed by its owner, as the events happen
};

}  // namespace troupe::route
