#pragma once

// Memory of the device, and what is said where there is none.

#include <cuda_runtime.h>

#include <memory>
#include <string_view>

#include "kernels/kernels.h"

namespace troupe::cuda {

// kResourceExhausted where memory is short, kUnavailable for all else; "what: why".
Status cuda_status(std::string_view what, cudaError_t error);
Status no_pinned_memory(size_t bytes);

class CudaBuffer final : public DeviceBuffer {
 public:
  // Not cleared: a wait for that would keep weights from being filled while others are fetched.
  static StatusOr<std::unique_ptr<CudaBuffer>> allocate(size_t bytes);
  ~CudaBuffer() override { cudaFree(data_); }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  CudaBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void* data_;
  size_t bytes_;
};

}  // namespace troupe::cuda
