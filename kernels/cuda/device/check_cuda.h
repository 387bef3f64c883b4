#pragma once

// The one way to handle CUDA's errors in ops. Thread-safe.

#include <cuda_runtime.h>

#include <string>

#include "kernels/check.h"

namespace troupe::cuda {

// A CUDA error while computing is a bug or a broken device; what was computed so far cannot be trusted, and
// no further call would work: the process ends, naming the op. (Its requests go on at another node.)
inline void check_cuda(const char* op, cudaError_t error) {
  if (error != cudaSuccess) check_failed(op, std::string("CUDA: ") + cudaGetErrorString(error));
}

}  // namespace troupe::cuda
