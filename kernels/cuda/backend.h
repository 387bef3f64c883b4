#pragma once

// Makes the CUDA backend of kernels.h; its insides are private to kernels/cuda. Threads as kernels.h says.

#include <memory>

#include "kernels/kernels.h"

namespace troupe::cuda {

// The "cuda" backend on the device of find_device(). kResourceExhausted where its own 34 MiB, and on
// Hopper 8 more, do not fit.
StatusOr<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options);

}  // namespace troupe::cuda
