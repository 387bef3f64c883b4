#pragma once

// The device that the backend computes on. Thread-safe; errors are Statuses, for a machine may have none.

#include <cstddef>
#include <string>

#include "common/core/status.h"

namespace troupe::cuda {

// The first device that CUDA shows (CUDA_VISIBLE_DEVICES chooses): "NVIDIA H100 80GB HBM3 (sm_90)".
// kNotFound where there is none. kUnavailable where it, or its driver, is too old, with what would do.
StatusOr<std::string> find_device();
// Why a driver for CUDA `driver` (cudaDriverGetVersion(): 12040 is 12.4) does not run code of CUDA `built`.
std::string driver_too_old(int driver, int built);
// Whether the driver takes graphs with launches that overlap: of CUDA 12.3 or newer.
bool driver_overlaps();
// Whether the device is of compute capability 9.0, the one that sm_90a's instructions are for.
bool is_hopper();
// Multiprocessors of the device.
int processor_count();
// Shared memory of one of them.
size_t shared_bytes_of_processor();

}  // namespace troupe::cuda
