#pragma once

// Runs independent simulations on several threads.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "common/core/status.h"

namespace troupe::sim {

// Bound of the default number of jobs, the machine's cores: each simulation has memory of its own.
inline constexpr int64_t kJobsByItself = 8;

// `asked`, or if that is 0 the default.
int64_t jobs_of(int64_t asked);

// Runs work(0) … work(count - 1), up to `jobs` of them at once, on threads of their own (one job: on the
// caller's). After a failure none is begun any more; of several failures the first by number is returned.
Status parallel_runs(size_t count, int64_t jobs, const std::function<Status(size_t)>& work);

}  // namespace troupe::sim
