#pragma once

// A node profile that was derived, written as those of configs/sim are: every figure with what it comes from.

#include <string>

#include "sim/sizing/sizing.h"

namespace troupe::sim {

// YAML that load_node_profile() reads back to derived_profile(), costs to five digits. REQUIRES: the model
// fits.
std::string profile_yaml(const ModelShape& model, const Gpu& gpu, int gpus);

}  // namespace troupe::sim
