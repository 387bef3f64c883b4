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
  float scale;      // draw_scale(); 0: greedy, as are rows that the host draws from
  int32_t top_k;    // 0: off
  float top_p, min_p;
  LogitPenalties penalties;
  int32_t first_edit, end_edit;
  // Addresses here, not among a launch's parameters: they are others in every step (step_graphs.h).
  const int32_t* last_drawn;  // SampleRow's; or null
  int32_t* out;
};

// Where the tokens of a step before lie on the device, and where those of this one go: (S) each.
struct DrawPlaces {
  const int32_t* drawn;
  int32_t* out;
};

// Rows of sample() as the device has them, and all their edits one behind the other. Both vectors are
// overwritten; their memory is kept.
void device_draws(std::span<const SampleRow> rows, const DrawPlaces& places, std::vector<DeviceDraw>& draws,
                  std::vector<LogitEdit>& edits);

// Replaces in params.out the tokens of rows that have a chain (sampler_chain.h) or a mask: the device edits
// their logits, the host draws, in some threads where the rows are many. Waits for the device.
void draw_on_host(Backend& backend, const SampleParams& params);

// Ids of embed() as the device has them: behind them, at an even place, the address of the tokens that ids
// below zero refer to. `out` is overwritten.
void device_ids(std::span<const int32_t> ids, const int32_t* drawn, std::vector<int32_t>& out);

}  // namespace troupe::cuda
