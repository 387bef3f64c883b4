#pragma once

// Rows of sample() translated to what the device reads; host code, tested without a GPU.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace troupe::cuda {

// A row of sample() as the device has it, sent as bytes; its edits are [first_edit, end_edit) of all rows'.
struct DeviceDraw {
  uint64_t random;  // counter_bits()
  float scale;      // draw_scale(); 0: greedy, as are rows with a chain, which the host draws
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

// Replaces in params.out the tokens of rows that have a chain (sampler_chain.h): the device edits their
// logits, the host draws. Waits for the device, once a row.
void draw_by_chains(Backend& backend, const SampleParams& params);

}  // namespace troupe::cuda
