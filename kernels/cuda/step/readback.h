#pragma once

// Tokens on their way to the host: into pinned memory, which the device writes while the host goes on.

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "kernels/kernels.h"

namespace troupe::cuda {

class PinnedReadback final : public Readback {
 public:
  // Null where there is no pinned memory to be had. `stream` must outlive it.
  static std::unique_ptr<PinnedReadback> make(cudaStream_t stream, size_t bytes);
  ~PinnedReadback() override;
  PinnedReadback(const PinnedReadback&) = delete;
  PinnedReadback& operator=(const PinnedReadback&) = delete;

  void start(const void* from, size_t bytes) override;
  const void* wait() override;

 private:
  PinnedReadback(cudaStream_t stream, size_t bytes) : stream_(stream), bytes_(bytes) {}

  cudaStream_t stream_;
  const size_t bytes_;  // room
  void* memory_ = nullptr;
  cudaEvent_t there_ = nullptr;
};

}  // namespace troupe::cuda
