#pragma once

// How much memory this process may still take of its machine: what that has available, or what the control
// group that it is in (of either version) leaves it, whichever is less. Pages of files count as free, since
// the kernel evicts them.

#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

struct HostMemory {
  int64_t free_bytes = 0;
  std::string source;  // the file that says so
};

// `root`: a folder that holds proc and sys, for tests. nullopt: no file says.
std::optional<HostMemory> host_memory(const std::string& root = "");

}  // namespace troupe
