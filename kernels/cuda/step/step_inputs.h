#pragma once

// The small arrays of a step's first and last ops, as their kernels read them, on the device.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/step/device_draws.h"
#include "kernels/cuda/step/step_arrays.h"
#include "kernels/kernels.h"

namespace troupe::cuda {

// Driven by the backend's one thread. Results are valid as StepArrays' are.
class StepInputs {
 public:
  explicit StepInputs(StepArrays& arrays) : arrays_(arrays) {}

  const int32_t* ids(const EmbedParams& params) {
    device_ids(params.ids, params.drawn.as<const int32_t>(), ids_);
    return arrays_.of_scratch(StepArray::kIds, ids_);
  }
  // (from, to) pairs.
  const int32_t* copies(std::span<const BlockCopy> copies) {
    copies_.clear();
    for (const BlockCopy& copy : copies) copies_.insert(copies_.end(), {copy.from, copy.to});
    return arrays_.of_scratch(StepArray::kCopies, copies_);
  }
  // The edits, whose number changes from step to step, come last: else the others' places would change, too.
  DrawInputs draws(const SampleParams& params) {
    draws_.fill(params, {params.drawn.as<const int32_t>(), params.out.as<int32_t>()});
    DrawInputs inputs;
    inputs.rows = arrays_.of_scratch(StepArray::kDraws, draws_.rows);
    inputs.chain_count = static_cast<int32_t>(draws_.chains.size());
    for (const DeviceChain& chain : draws_.chains) {
      inputs.chain_tokens = std::max(inputs.chain_tokens, chain.row.first_count);
    }
    if (!draws_.chains.empty()) {
      inputs.chains = arrays_.of_scratch(StepArray::kChains, draws_.chains);
      inputs.mus = arrays_.memory<float>(StepArray::kMus, draws_.chains.size());
    }
    if (!draws_.masks.empty()) inputs.masks = arrays_.of_scratch(StepArray::kMasks, draws_.masks);
    inputs.edits = arrays_.of_scratch(StepArray::kLogitEdits, draws_.edits);
    return inputs;
  }
  // As the last draws() had them.
  std::span<const DeviceChain> chains() const { return draws_.chains; }

 private:
  StepArrays& arrays_;
  std::vector<int32_t> ids_, copies_;
  DeviceDraws draws_;
};

}  // namespace troupe::cuda
