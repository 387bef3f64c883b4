#pragma once

// What attention's choices for decodes are made of: times taken on the KV memory itself before anything is in
// it, of one layer.

#include <cuda_runtime.h>

#include <functional>
#include <string>

#include "kernels/cuda/attention_arrays.h"
#include "kernels/cuda/cascade_gate.h"
#include "kernels/tune.h"

namespace troupe::cuda {

struct DecodeTiming {
  cudaStream_t stream = nullptr;
  StepArrays& arrays;
  const BoundKv& kv;
  StepLimits limits;
  int32_t piece_keys = kPieceKeys;
  std::function<float*(int64_t count)> partials;  // memory for so many
};

// Requests of one query with so many keys, of which the first `shared` are the same for all.
struct Decodes {
  int32_t requests = 1;
  int32_t shared_keys = 0, own_keys = 0;
  bool cascade = false;  // read once for all of them
  bool lanes = false;    // PlannedAttention's
};
// None where requests have no room for so many keys each, or blocks for all of them.
std::optional<double> seconds_of(const DecodeTiming& timing, const Decodes& decodes);

// Both as `tuning` knows it of such a model on this device, or measured now and put there. `device` names it.
//
// Are pieces faster without tensor cores (lane_attention.cu)? One answer for all batches, so that a request's
// bits hang on none: of a lone request, a few and many, the product of the times counts.
bool choose_lanes(const DecodeTiming& timing, const std::string& device, Tuning& tuning);
CascadeGate choose_gate(const DecodeTiming& timing, bool lanes, const std::string& device, Tuning& tuning);

}  // namespace troupe::cuda
