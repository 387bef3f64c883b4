#pragma once

// A fleet on a virtual clock: G gateways, each a real route::Router, over N nodes, each a real Scheduler
// whose steps take as long as a profile says. What travels between them takes the times that the options say.
// Open loop: requests arrive when the source says, whatever the fleet does.
//
// One thread, no wall clock but to time itself; the same source, options and seed give the same Result.

#include "common/core/status.h"
#include "sim/fleet/result.h"
#include "sim/fleet/simulation_options.h"
#include "sim/trace/trace.h"

namespace troupe::sim {

// Errors: options that cannot be (named), or the source's own. A conservation check that fails aborts: it is
// our bug.
StatusOr<Result> simulate(RequestSource& source, const SimulationOptions& options);

}  // namespace troupe::sim
