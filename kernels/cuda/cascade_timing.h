#pragma once

// The times that a cascade's gate is made of (cascade_gate.h), taken on the KV memory itself before anything
// is in it: decodes of one layer, with a read of what they share for all and with one each.

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

// None where requests have no room for so many keys each, or blocks for all of them.
std::optional<double> seconds_of_decodes(const DecodeTiming& timing, int32_t requests, int32_t shared_keys,
                                         bool cascade);
// As `tuning` knows it of such a model on this device, or measured now and put there. `device` names it.
CascadeGate choose_gate(const DecodeTiming& timing, const std::string& device, Tuning& tuning);

}  // namespace troupe::cuda
