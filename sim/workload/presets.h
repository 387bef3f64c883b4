#pragma once

// Persona traffic like that of published data: --like NAME.

#include <string>
#include <string_view>
#include <vector>

#include "sim/workload/workload.h"

namespace troupe::sim {

// The first is the default of PersonaWorkload.
std::vector<std::string> preset_names();
// Text for --help: every preset's figures and their sources.
std::string preset_words();
// REQUIRES: one of the names. Unpublished figures keep their defaults.
PersonaWorkload workload_like(std::string_view name);

}  // namespace troupe::sim
