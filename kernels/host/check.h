#pragma once

// The one assert of the compute layer. What it guards cannot be reached by a request's input, only by a bug
// of the caller; going on would read or write foreign memory, so it stays on in release builds and ends the
// process, naming the op and what was wrong with which shape.

#include <string>
#include <string_view>

namespace troupe {

// Prints "kernels: op: message" to stderr and aborts.
[[noreturn]] void check_failed(std::string_view op, std::string_view message);

}  // namespace troupe

// `message` is evaluated only on failure.
#define TROUPE_CHECK(condition, message)                           \
  do {                                                             \
    if (!(condition)) ::troupe::check_failed(#condition, message); \
  } while (false)
