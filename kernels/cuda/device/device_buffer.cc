#include "kernels/cuda/device/device_buffer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::cuda {

Status cuda_status(std::string_view what, cudaError_t error) {
  const std::string message =
      absl::StrCat(absl::string_view(what.data(), what.size()), ": ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

Status no_pinned_memory(size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes of pinned host memory are not to be had"));
}

StatusOr<std::unique_ptr<CudaBuffer>> CudaBuffer::allocate(size_t bytes) {
  void* data = nullptr;
  if (const cudaError_t error = cudaMalloc(&data, std::max<size_t>(bytes, 1)); error != cudaSuccess) {
    return cuda_status(absl::StrCat(bytes, " bytes of device memory"), error);
  }
  return std::unique_ptr<CudaBuffer>(new CudaBuffer(data, bytes));
}

}  // namespace troupe::cuda
