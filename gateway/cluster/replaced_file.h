#pragma once

// A file that is always written as a whole: to another one beside it, which then takes its place, so that a
// reader, and a gateway that begins after this machine failed, finds the old text or the new one. Only its
// owner may read it. Blocks until the disk has it: not for the event loop's thread.

#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe {

Status replace_file(const std::string& path, std::string_view text);

}  // namespace troupe
