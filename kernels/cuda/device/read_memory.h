#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/launch_stream.h"

namespace troupe::cuda {

// sum (1) += the words of `memory`, aligned to 16 bytes, as far as they fill 16: reads it, nothing else.
void read_memory(const LaunchStream& stream, const void* memory, size_t bytes, uint32_t* sum);

}  // namespace troupe::cuda
