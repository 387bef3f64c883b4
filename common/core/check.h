#pragma once

// The one assert. What it guards cannot be reached by any input, only by a mistake of the calling code; going
// on would answer with another request's tokens or write foreign memory. Release builds keep it: a condition
// that holds costs one predicted branch, and `message` is evaluated only on failure.
//
//   TROUPE_CHECK(count <= free_count(), std::to_string(count) + " blocks are not free");

#include <string_view>

namespace troupe {

// Prints "FILE:LINE: check failed: CONDITION: MESSAGE" to stderr and aborts.
[[noreturn, gnu::cold]] void check_failed(const char* file, int line, const char* condition,
                                          std::string_view message);

}  // namespace troupe

#define TROUPE_CHECK(condition, message)                               \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::troupe::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)
