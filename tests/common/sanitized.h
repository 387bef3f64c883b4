#pragma once

// Instrumented code is ten to thirty times slower and shows other faults than wrong results: the heaviest
// tests do less of the same there.

#include <cstdint>

namespace troupe {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// An eighth of it under sanitizers: of how often a random case is tried, and of what that is to reach.
constexpr int64_t eighth_if_sanitized(int64_t count) {
  return kSanitized ? count / 8 : count;
}

}  // namespace troupe
