#pragma once

// The outcome of a world of the fault simulation.

#include <cstdint>
#include <string>

#include "common/core/block_hash.h"

namespace troupe::route::faults {

struct Outcome {
  std::string breach;  // empty: everything held
  Hash128 digest;      // of all that was decided
  int64_t requests = 0, failed = 0, faults = 0;
  std::string setting;  // in words
};

}  // namespace troupe::route::faults
