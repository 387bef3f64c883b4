#pragma once

// Where the files that come with a program lie, wherever it was started from.

#include <string>

#include "common/core/status.h"

namespace troupe {

// The nearest directory that holds `item` ("configs/sim"): one of those above the running program's own (a
// source tree, with the program in build/bin), or share/troupe beside one of them (an installation).
// kNotFound says where was looked.
StatusOr<std::string> find_program_files(const std::string& item);

}  // namespace troupe
