#pragma once

#include <absl/functional/function_ref.h>

#include <cstddef>
#include <string>

namespace troupe {

// Lets `fill` write up to `room` bytes behind the end of `text`, which grows by as many as it says that it
// has written. What it has not written is nobody's: unlike after resize(), it was never zeroed. Memory grows
// as reserve() does. Returns what `fill` returned.
size_t append_by(std::string& text, size_t room, absl::FunctionRef<size_t(char*)> fill);

}  // namespace troupe
