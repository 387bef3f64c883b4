#pragma once

// Tokens on their way to the host: into pinned memory, which the device writes while the host goes on.

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "kernels/cuda/device/watchdog.h"
#include "kernels/kernels.h"

namespace troupe::cuda {

class PinnedReadback final : public Readback {
 public:
  // Null where there is no pinned memory to be had. `stream` and `watchdog`, which is of it, must outlive it.
  static std::unique_ptr<PinnedReadback> make(cudaStream_t stream, Watchdog& watchdog, size_t bytes);
  ~PinnedReadback() override;
  PinnedReadback(const PinnedReadback&) = delete;
  PinnedReadback& operator=(const PinnedReadback&) = delete;

  void start(const void* from, size_t bytes) override;
  const void* wait() override;

 private:
  PinnedReadback(cudaStream_t stream, Watchdog& watchdog, size_t bytes)
      : stream_(stream), watchdog_(watchdog), bytes_(bytes) {}

  cudaStream_t stream_;
  Watchdog& watchdog_;
  const size_t bytes_;  // room
  void* memory_ = nullptr;
  cudaEvent_t there_ = nullptr;
  uint64_t launches_ = 0;  // before it
};

}  // namespace troupe::cuda
