#pragma once

// Warms a runner up before the first request. Called once, on the thread that will compute; the error is the
// step's that failed.

#include <cstdint>
#include <vector>

#include "worker/model/runner.h"

namespace troupe {

// Token counts of the warm-up's steps, ascending. Implementations are measured for a bucket of rows
// (kernels/rows_bucket.h), so the sizes are all buckets up to `largest`, `largest` itself, and the maximum
// number of decodes: a step has that many rows of logits, and no prompt has.
std::vector<int64_t> warm_up_sizes(int64_t largest, int64_t max_num_seqs);

// Computes steps of every size up to the largest, so that first-time costs (memory, loading of kernels,
// measuring of implementations) are over before the first request. `options` are the runner's. Overwrites the
// KV blocks: REQUIRES no batch in flight and nothing cached.
Status warm_up(ModelRunner& runner, const RunnerOptions& options);

}  // namespace troupe
