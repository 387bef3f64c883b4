#pragma once

// TROUPE_CHECK (common/core/check.h) for an op's parameters: a failure names the op and what was wrong with
// which shape, as a condition's text would not.

#include <string_view>

namespace troupe {

// Prints "kernels: op: message" to stderr and aborts.
[[noreturn]] void check_failed(std::string_view op, std::string_view message);

}  // namespace troupe
