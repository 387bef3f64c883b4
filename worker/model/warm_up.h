#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/runner.h"

namespace troupe {

// The numbers of tokens whose steps are computed, ascending. Implementations are measured for a power of two
// and the rows below it, so all of these up to `largest`, and that; and as many decodes as there may be: a
// step has as many rows of logits, and no prompt has.
std::vector<int64_t> warm_up_sizes(int64_t largest, int64_t max_num_seqs);

// Computes steps of every size up to the largest, so that what comes with a first time (memory, kernels
// loaded, implementations measured) is over before the first request. `options` are those it was loaded with.
// Overwrites the KV blocks: REQUIRES no batch in flight and nothing cached.
Status warm_up(ModelRunner& runner, const RunnerOptions& options);

}  // namespace troupe
