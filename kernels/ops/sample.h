#pragma once

// Parameters and checks of Backend::sample(). S rows of V logits. Violated shapes end the process; a row
// without a number yields kNoDraw.

#include <span>

#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace troupe {

// out[s] = the token drawn from logits[s], whose edits are made in place before; kNoDraw where there is none.
struct SampleParams {
  Tensor logits;                    // (S, V) float32, V <= kDrawVocabMax
  std::span<const SampleRow> rows;  // (S)
  Tensor out;                       // (S) int32
  Tensor drawn = {};                // int32, or empty: `out` of the step before, other memory than `out`
};

void check_params(const SampleParams& params);

}  // namespace troupe
