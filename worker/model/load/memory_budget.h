#pragma once

// How much KV memory an accelerator has room for. Pure: what is there and what is taken are arguments.

#include <cstdint>

#include "common/core/status.h"
#include "kernels/kernels.h"

namespace troupe {

// What is left beside the KV for what comes with steps of a kind that the warm-up had not: graphs, kernels
// that the driver loads when they are first launched.
inline constexpr int64_t kStepReserveBytes = int64_t{256} << 20;

struct MemoryAsk {
  DeviceMemory device;       // now, with weights and activations in it
  double utilization = 0.9;  // share of the whole that may be in use, whoever uses it
  int64_t block_bytes = 0;   // of one KV block, all layers
};

// The KV blocks that fit. kResourceExhausted where not even one does: with what is taken, what may be, and
// what would help.
StatusOr<int64_t> kv_blocks_that_fit(const MemoryAsk& ask);

}  // namespace troupe
