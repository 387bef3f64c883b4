#pragma once

// Every connection is a file to the kernel, and the usual soft limit of 1024 is far below what a server here
// admits: past it accept() and connect() fail one by one, under load and not at the start.

#include <cstddef>

#include "common/core/status.h"

namespace troupe {

// Raises this process's soft limit of open files to `wanted`, or as far as the hard limit lets it; never
// lowers it. kResourceExhausted: it stays below; the message says at what and what to raise.
Status raise_file_limit(size_t wanted);

}  // namespace troupe
