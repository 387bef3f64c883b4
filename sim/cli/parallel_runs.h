#pragma once

// Simulations that know nothing of each other, on several threads.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "common/core/status.h"

namespace troupe::sim {

// As many as the machine has cores, but no more than this: each simulation has memory of its own.
inline constexpr int64_t kJobsByItself = 8;

// `asked`, or where that is 0 what the machine has.
int64_t jobs_of(int64_t asked);

// work(0) … work(count - 1), up to `jobs` of them at once, on threads of their own (with one job on the
// caller's). After a failure none is begun any more; of several failures the first by number is returned.
Status parallel_runs(size_t count, int64_t jobs, const std::function<Status(size_t)>& work);

}  // namespace troupe::sim
