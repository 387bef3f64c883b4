#pragma once

#include <time.h>

namespace troupe {

// Processor time of this thread so far, in seconds. A bound on work is held against it, as a test may have to
// wait for the processors.
inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace troupe
