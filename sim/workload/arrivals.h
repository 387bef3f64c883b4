#pragma once

// When conversations of made-up traffic begin.

#include "sim/workload/distributions.h"
#include "sim/workload/workload.h"

namespace troupe::sim {

// The next one after that at `at`; `gap_s` is the mean between two at the full rate.
Duration next_start(const PersonaWorkload& workload, double gap_s, Duration at, Draw& draw);

}  // namespace troupe::sim
