#pragma once

// Rows of sample() translated to what the device reads; pure host code, tested without a GPU. Trivially
// copyable: sent as bytes.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling.h"

namespace troupe::cuda {

// A row of sample() as the device has it; its edits are [first_edit, end_edit) of all rows'.
struct DeviceDraw {
  uint64_t random;  // counter_bits()
  float scale;      // draw_scale(); 0: greedy
  int32_t top_k;    // 0: off
  float top_p, min_p;
  LogitPenalties penalties;
  int32_t first_edit, end_edit;
  int32_t last_drawn;  // SampleRow's
};

// Rows of sample() as the device has them, and all their edits one behind the other. Both vectors are
// overwritten; their memory is kept.
void device_draws(std::span<const SampleRow> rows, std::vector<DeviceDraw>& draws,
                  std::vector<LogitEdit>& edits);

}  // namespace troupe::cuda
