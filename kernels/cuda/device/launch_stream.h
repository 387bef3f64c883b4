#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/device/launch_list.h"
#include "kernels/cuda/device/watchdog.h"

namespace troupe::cuda {

// The stream that an op is launched in. `overlaps`: its blocks may come to the device while the launch before
// it still runs, and get as far as await_launch_before() (ptx.cuh): programmatic dependent launch, CUDA
// programming guide. Work that launch() does not launch (copies, the library's products) does not overlap.
// REQUIRES of overlaps: has_hopper_code() (attention_kernels.h).
struct LaunchStream {
  LaunchStream(cudaStream_t of, bool overlapping = false) : handle(of), overlaps(overlapping) {}  // NOLINT
  // `op`: a literal.
  void launched(const char* op) const {
    if (watchdog != nullptr) watchdog->launched(op);
  }
  cudaStream_t handle;
  bool overlaps;
  Watchdog* watchdog = nullptr;  // that is to know of launches
  LaunchList* list = nullptr;    // where they are written down instead of made in `handle`
};

}  // namespace troupe::cuda
