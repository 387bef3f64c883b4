#pragma once

// Memory in which the blocks of one launch of attention leave their sums for each other.

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/watchdog.h"

namespace troupe::cuda {

// Driven by the backend's one thread.
class AttentionScratch {
 public:
  struct Memory {
    float* partials;  // sums of pieces
    int* counters;    // of rows whose sums are there; 0 between two launches
  };
  // `stream`: where the launches are; `watchdog`: of it. `before_change` is called before other memory takes
  // the place of what is there: launches that are held back have to be on their way.
  AttentionScratch(cudaStream_t stream, Watchdog& watchdog, std::function<void()> before_change)
      : stream_(stream), watchdog_(watchdog), before_change_(std::move(before_change)) {}

  // At least so much of each; what was there before stays where it is enough.
  StatusOr<Memory> of(int64_t partial_floats, int64_t counter_count);
  int64_t bytes() const;

 private:
  static bool lacks(const std::unique_ptr<CudaBuffer>& buffer, int64_t bytes) {
    return buffer == nullptr || static_cast<size_t>(bytes) > buffer->bytes();
  }
  Status grow(std::unique_ptr<CudaBuffer>& buffer, int64_t bytes);

  cudaStream_t stream_;
  Watchdog& watchdog_;
  std::function<void()> before_change_;
  std::unique_ptr<CudaBuffer> partials_, counters_;
};

}  // namespace troupe::cuda
