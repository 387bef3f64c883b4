#pragma once

// Start times of synthetic conversations.

#include "sim/workload/distributions.h"
#include "sim/workload/workload.h"

namespace troupe::sim {

// The next start after the one at `at`; `gap_s` is the mean gap at the full rate.
Duration next_start(const PersonaWorkload& workload, double gap_s, Duration at, Draw& draw);

}  // namespace troupe::sim
