#pragma once

// Loads a worker without a model, as load.h does one with: words, and a runner that takes its time from a
// profile.

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/status.h"
#include "worker/load.h"

namespace troupe {

// REQUIRES: resolved settings with device "sim".
StatusOr<LoadedModel> load_sim_model(const WorkerSettings& settings, Metrics& metrics, const Logger& log);

}  // namespace troupe
