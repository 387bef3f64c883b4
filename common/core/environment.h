#pragma once

// The environment as a source of secrets, which belong neither in a file of settings nor in the list of
// processes; and of where the machine's own libraries and devices are.

#include <optional>
#include <string>

namespace troupe {

// A variable's value; nullopt: it is not set.
std::optional<std::string> environment_variable(const std::string& name);

}  // namespace troupe
