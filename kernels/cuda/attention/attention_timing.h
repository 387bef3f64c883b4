#pragma once

// Attention's choices are made of these times, taken of one layer on the KV memory itself before anything is
// in it.

#include <cuda.h>
#include <cuda_runtime.h>

#include <functional>
#include <optional>
#include <string>

#include "kernels/cuda/attention/attention_arrays.h"
#include "kernels/cuda/attention/cascade_gate.h"
#include "kernels/kernels.h"
#include "kernels/tune.h"

namespace troupe::cuda {

struct AttentionTiming {
  cudaStream_t stream = nullptr;
  StepArrays& arrays;
  const BoundKv& kv;
  StepLimits limits;
  int32_t piece_keys = kPieceKeys;
  std::function<float*(int64_t count)> partials;  // memory for so many
};

// Requests of so many queries each, with so many keys, of which the first `shared` are the same for all.
struct TimedAttention {
  int32_t requests = 1;
  int32_t queries = 1;
  int32_t shared_keys = 0, own_keys = 0;
  bool cascade = false;  // read once for all of them
  bool lanes = false;    // PlannedAttention's
  const CUtensorMap* kv_map = nullptr;
  bool in_turn = false;
};
// None where a step or a request has no room for so many, or the memory no blocks for all of them.
std::optional<double> seconds_of(const AttentionTiming& timing, const TimedAttention& what);

// The kernels that compute attention on a model's KV memory.
struct AttentionKernels {
  bool lanes = false;                 // decodes without tensor cores, where it takes the groups
  std::optional<CUtensorMap> kv_map;  // where tiles are computed by warpgroups
  bool in_turn = false;               // and these take turns at the tensor cores
  CascadeGate gate = CascadeGate::guessed();
  std::string shortfall;  // reason and effect, where the device should have others; else empty
};
// The kernels that the options name, or that `tuning` has for such a model on this device, or that are
// measured now and kept there, if steps have limits. `device` names it.
//
// Decodes by lanes or tiles: one answer for all batches, so that a request's bits depend on none; the product
// of the times of a lone request, a few and many decides. Tiles by warpgroups, and these in turn, whose bits
// are the same: timed on a whole prompt, the end of one, and new text behind a cached persona.
AttentionKernels choose_attention(const AttentionTiming& timing, const BackendOptions& options,
                                  const std::string& device, Tuning& tuning);

}  // namespace troupe::cuda
