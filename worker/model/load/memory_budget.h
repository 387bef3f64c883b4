#pragma once

// Computes how much KV memory an accelerator has room for. Pure: total and used memory are arguments.

#include <cstdint>

#include "common/core/status.h"
#include "kernels/kernels.h"

namespace troupe {

// Memory left beside the KV for kinds of steps that the warm-up did not run: graphs, and kernels that the
// driver loads at their first launch.
inline constexpr int64_t kStepReserveBytes = int64_t{256} << 20;

struct MemoryRequest {
  DeviceMemory device;       // now, with weights and activations in it
  double utilization = 0.9;  // share of the total that may be in use, by all processes
  int64_t block_bytes = 0;   // of one KV block, all layers
};

// Returns the number of KV blocks that fit. kResourceExhausted if not even one does; the message gives the
// memory used, the limit, and the remedy.
StatusOr<int64_t> kv_blocks_that_fit(const MemoryRequest& request);

}  // namespace troupe
