#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/ops/ops.h"
#include "kernels/sampling.h"

namespace troupe::cuda {

// Rows of sample() as the device has them, and all their edits one behind the other. Both vectors are
// overwritten; their memory is kept.
void device_draws(std::span<const SampleRow> rows, std::vector<DeviceDraw>& draws,
                  std::vector<LogitEdit>& edits);

}  // namespace troupe::cuda
