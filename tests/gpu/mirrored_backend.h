#pragma once

// A device's backend for tests whose tensors lie in host memory: before an op everything it may read goes to
// the device, behind it everything it may have written comes back. Slow, and to the bit what the op does.

#include <memory>

#include "kernels/kernels.h"

namespace troupe::gpu_testing {

std::unique_ptr<Backend> mirror(std::unique_ptr<Backend> device);

}  // namespace troupe::gpu_testing
