#include "kernels/cuda/device/find_device.h"

#include <cuda_runtime.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/check_cuda.h"
#include "kernels/cuda/device/device_buffer.h"

namespace troupe::cuda {

namespace {

int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

std::string release(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

std::string driver_too_old(int driver, int built) {
  const bool of_13 = built >= 13000;
  const bool other_would_do = of_13 && driver >= 12000;
  return absl::StrCat(
      "the NVIDIA driver ", driver == 0 ? "is none that CUDA knows" : "is for CUDA " + release(driver),
      ", this build is of CUDA ", release(built), ": install driver ", of_13 ? "580" : "525", " or newer",
      other_would_do ? ", or a build of CUDA 12.8, which takes drivers from 525 on" : "");
}

bool driver_overlaps() {
  return driver_version() >= 12030;
}

StatusOr<std::string> find_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return absl::UnavailableError(driver_too_old(driver_version(), CUDART_VERSION));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return absl::NotFoundError("CUDA finds no device");
  }
  if (error != cudaSuccess) return cuda_status("CUDA finds no device", error);
  cudaDeviceProp properties{};
  if (const cudaError_t failed = cudaGetDeviceProperties(&properties, 0); failed != cudaSuccess) {
    return cuda_status("CUDA device 0", failed);
  }
  std::string device = absl::StrCat(properties.name, " (sm_", properties.major, properties.minor, ")");
  if (properties.major < 8) {
    return absl::UnavailableError(
        absl::StrCat("CUDA device 0 is ", device, "; sm_80 (Ampere) or newer is needed"));
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

bool is_hopper() {
  return attribute_of_device(cudaDevAttrComputeCapabilityMajor) == 9 &&
         attribute_of_device(cudaDevAttrComputeCapabilityMinor) == 0;
}

int processor_count() {
  return attribute_of_device(cudaDevAttrMultiProcessorCount);
}

size_t shared_bytes_of_processor() {
  return static_cast<size_t>(attribute_of_device(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
}

}  // namespace troupe::cuda
