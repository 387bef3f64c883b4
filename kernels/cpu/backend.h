#pragma once

// Makes the CPU backend of kernels.h; its insides are private to kernels/cpu. Threads as kernels.h says.

#include <memory>

#include "kernels/kernels.h"

namespace troupe::cpu {

// The "cpu" backend on `options.threads` threads. kInvalidArgument where this machine lacks `options.isa`.
StatusOr<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options);

}  // namespace troupe::cpu
