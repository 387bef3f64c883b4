#pragma once

// Every connection is a file to the kernel, and the usual soft limit of 1024
// is far below the number of connections a server here admits: beyond it
// accept() and connect() fail one by one, under load and not at the start.

#include <cstddef>

#include "common/core/status.h"

namespace troupe {

// Raises this process's soft limit of open files to `wanted`, or up to the hard limit; never lowers it.
// kResourceExhausted: it stays below; the message has the limit reached and the setting to raise.
Status raise_file_limit(size_t wanted);

// Whether descriptor `fd`, which has just been opened, is one of the last that this process may have. A
// descriptor gets the lowest free number, so its number shows how many are in use. What may be opened without
// end keeps from the last ones, so that ports with few connections (probes, metrics) still get theirs:
// clients' connections from all of these, connections to workers from half.
enum class KeptFiles { kAll, kHalf };
bool is_kept_file(int fd, KeptFiles kept);

}  // namespace troupe
