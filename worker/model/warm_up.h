#pragma once

#include "worker/model/runner.h"

namespace troupe {

// Computes steps of every size up to the largest, so that what comes with a first time (memory, kernels
// loaded, implementations measured) is over before the first request. `options` are those it was loaded with.
// Overwrites the KV blocks: REQUIRES no batch in flight and nothing cached.
Status warm_up(ModelRunner& runner, const RunnerOptions& options);

}  // namespace troupe
