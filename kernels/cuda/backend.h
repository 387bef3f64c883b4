#pragma once

#include <memory>
#include <string>

#include "kernels/kernels.h"

namespace troupe::cuda {

// The first device that CUDA shows (CUDA_VISIBLE_DEVICES chooses): "NVIDIA H100 80GB HBM3 (sm_90)".
// kUnavailable with the reason where there is none or it is too old.
StatusOr<std::string> find_device();

// The "cuda" backend on it. kResourceExhausted where its own 34 MiB do not fit.
StatusOr<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options);

}  // namespace troupe::cuda
