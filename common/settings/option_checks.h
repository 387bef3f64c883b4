#pragma once

// Two things that every part of the simulator needs with its options: times from flags, and ranges said in
// words.

#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/core/time.h"

namespace troupe::sim {

inline Duration millis(double ms) {
  return Duration(std::llround(ms * 1e6));
}

inline Status check_range(std::string_view name, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return invalid_argument(absl::StrCat(to_absl(name), " is ", value, ", must be from ", least, " to ", most));
}

}  // namespace troupe::sim
