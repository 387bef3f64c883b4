#pragma once

// The small arrays of a step's first and last ops, as their kernels read them, on the device.

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
  struct Draws {
    const DeviceDraw* rows;
    const LogitEdit* edits;
  };
  Draws draws(const SampleParams& params) {
    device_draws(params.rows, {params.drawn.as<const int32_t>(), params.out.as<int32_t>()}, rows_, edits_);
    const DeviceDraw* const rows = arrays_.of_scratch(StepArray::kDraws, rows_);
    return {rows, arrays_.of_scratch(StepArray::kLogitEdits, edits_)};
  }

 private:
  StepArrays& arrays_;
  std::vector<int32_t> ids_, copies_;
  std::vector<DeviceDraw> rows_;
  std::vector<LogitEdit> edits_;
};

}  // namespace troupe::cuda
