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
  explicit PinnedReadback(cudaStream_t stream) : stream_(stream) {}

  cudaStream_t stream_;
  void* memory_ = nullptr;
  cudaEvent_t there_ = nullptr;
};

}  // namespace troupe::cuda
