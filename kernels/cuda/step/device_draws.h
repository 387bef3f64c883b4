#pragma once

// Rows of sample() translated to what the device reads; host code, tested without a GPU.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/chain_row.h"
#include "kernels/kernels.h"

namespace troupe::cuda {

// A row of sample() as the device has it, sent as bytes; its edits are [first_edit, end_edit) of all rows'.
struct DeviceDraw {
  uint64_t random;  // counter_bits()
  float scale;      // draw_scale(); 0: greedy
  int32_t top_k;    // 0: off
  float top_p, min_p;
  LogitPenalties penalties;
  int32_t first_edit, end_edit;
  int32_t first_mask_word;  // of all rows' masks; below zero: it has none
  bool edits_are_late;      // of them only the biases are edits of the row (sampler_chain.h); they are sorted
  bool has_chain;           // it is drawn by a DeviceChain
  // Addresses here, not among a launch's parameters: they are others in every step (step_graphs.h).
  const int32_t* last_drawn;  // SampleRow's; or null
  int32_t* out;
};

// One that has a chain of samplers and is not greedy.
struct DeviceChain {
  ChainRow row;
  int32_t place;  // of its DeviceDraw
};

// Where the tokens of a step before lie on the device, and where those of this one go: (S) each.
struct DrawPlaces {
  const int32_t* drawn;
  int32_t* out;
};

// Rows of sample() as the device has them, and all their edits and masks one behind the other.
struct DeviceDraws {
  std::vector<DeviceDraw> rows;
  std::vector<DeviceChain> chains;
  std::vector<LogitEdit> edits;
  std::vector<uint32_t> masks;

  // Overwrites all; the memory is kept.
  void fill(const SampleParams& params, const DrawPlaces& places);
};

// The same in device memory.
struct DrawInputs {
  const DeviceDraw* rows = nullptr;
  const LogitEdit* edits = nullptr;
  const uint32_t* masks = nullptr;
  const DeviceChain* chains = nullptr;
  int32_t chain_count = 0;
  int32_t chain_tokens = 0;  // that the longest one begins with
  float* mus = nullptr;      // (chain_count) of mirostat, behind the draw: the kernel writes them
};

// Gives each row with mirostat its μ behind the draw; `mus`: DrawInputs'. Waits for the device where there is
// such a row.
void take_mirostat(Backend& backend, const SampleParams& params, std::span<const DeviceChain> chains,
                   const float* mus);

// Ids of embed() as the device has them: behind them, at an even place, the address of the tokens that ids
// below zero refer to. `out` is overwritten.
void device_ids(std::span<const int32_t> ids, const int32_t* drawn, std::vector<int32_t>& out);

}  // namespace troupe::cuda
