#pragma once

// Appends bytes that a C-style writer fills in place, without zeroing them first. Pure; `fill` must not
// throw.

#include <absl/functional/function_ref.h>

#include <cstddef>
#include <string>

namespace troupe {

// Lets `fill` write up to `room` bytes after the end of `text`, which grows by the number of bytes that
// `fill` reports as written. Unwritten bytes are never zeroed, unlike after resize(). Memory grows as
// reserve() does. Returns fill's result.
size_t append_by(std::string& text, size_t room, absl::FunctionRef<size_t(char*)> fill);

}  // namespace troupe
