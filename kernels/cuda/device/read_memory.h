#pragma once

// Reads device memory and nothing else. Queued on the stream: `memory` and `sum`, on the device, live until
// it is done. A CUDA error ends the process (check_cuda.h).

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/launch_stream.h"

namespace troupe::cuda {

// sum (1) += the words of `memory`, aligned to 16 bytes, as far as they fill 16: reads it, nothing else.
void read_memory(const LaunchStream& stream, const void* memory, size_t bytes, uint32_t* sum);

}  // namespace troupe::cuda
