#include "kernels/cuda/device/find_device.h"

#include <cuda_runtime.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/check_cuda.h"
#include "kernels/cuda/device/device_buffer.h"

namespace troupe::cuda {

StatusOr<std::string> find_device() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return cuda_status("CUDA finds no device", error);
  }
  if (count == 0) return absl::UnavailableError("CUDA finds no device");
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    return cuda_status("CUDA device 0", error);
  }
  std::string device = absl::StrCat(properties.name, " (sm_", properties.major, properties.minor, ")");
  if (properties.major < 8) {
    return absl::UnavailableError(absl::StrCat("CUDA device 0 is ", device, "; sm_80 or newer is needed"));
  }
  return device;
}

namespace {

int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check_cuda("device", cudaGetDevice(&device));
  check_cuda("device", cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace

int processor_count() {
  return attribute_of_device(cudaDevAttrMultiProcessorCount);
}

size_t shared_bytes_of_processor() {
  return static_cast<size_t>(attribute_of_device(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
}

}  // namespace troupe::cuda
