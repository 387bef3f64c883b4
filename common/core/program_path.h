#pragma once

// Finds the files installed with a program, independent of the working directory.

#include <string>

#include "common/core/status.h"

namespace troupe {

// Returns the nearest directory that holds `item` ("configs/sim"): one above the running program's own (a
// source tree, with the program in build/bin), or share/troupe beside one of them (an installation).
// kNotFound lists the places searched.
StatusOr<std::string> find_program_files(const std::string& item);

}  // namespace troupe
