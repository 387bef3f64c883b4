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

// How often a random case is tried: under sanitizers an eighth of it.
constexpr int64_t eighth_if_sanitized(int64_t count) {
  return kSanitized ? count / 8 : count;
}
// The least that all tries together are to come to: an eighth of them to half of their share, for few differ
// more than many.
constexpr int64_t least_of_eighth(int64_t count) {
  return kSanitized ? count / 16 : count;
}

}  // namespace troupe
