#pragma once

// The device that the backend computes on. Thread-safe; errors are Statuses, for a machine may have none.

#include <cstddef>
#include <string>

#include "common/core/status.h"

namespace troupe::cuda {

// The first device that CUDA shows (CUDA_VISIBLE_DEVICES chooses): "NVIDIA H100 80GB HBM3 (sm_90)".
// kUnavailable with the reason where there is none or it is too old.
StatusOr<std::string> find_device();
// Multiprocessors of the device.
int processor_count();
// Shared memory of one of them.
size_t shared_bytes_of_processor();

}  // namespace troupe::cuda
