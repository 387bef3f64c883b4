#pragma once

// A derived node profile, written like those of configs/sim: every figure with its source.

#include <string>

#include "sim/sizing/sizing.h"

namespace troupe::sim {

// YAML that load_node_profile() reads back to derived_profile(), costs to five digits. REQUIRES: the model
// fits.
std::string profile_yaml(const ModelShape& model, const Gpu& gpu, int gpus);

}  // namespace troupe::sim
