#pragma once

// Times launches, to choose among several. Errors end the process (check_cuda.h).

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

namespace troupe::cuda {

// Memory of the device for the time of a measurement; null where there is none to be had.
class DeviceScratch {
 public:
  explicit DeviceScratch(size_t bytes);
  ~DeviceScratch() { cudaFree(data_); }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// The median of a few, each behind a cache that holds nothing of its operands. `op` names it in errors.
double seconds_of_launch(const char* op, cudaStream_t stream, const std::function<void()>& launch);

}  // namespace troupe::cuda
