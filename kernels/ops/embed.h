#pragma once

// Parameters and checks of Backend::embed(). T tokens, V ids of the vocabulary, D the model's width, S drawn
// tokens. Violated shapes end the process.

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace troupe {

// out[t] = table[ids[t]]; table[0] where no token was drawn (kNoDraw), a row that is not used
struct EmbedParams {
  std::span<const int32_t> ids;  // (T), each in [0, V), or -1 - s: the one in drawn[s]
  Tensor table;                  // (V, D) as loaded: float32, bfloat16 or float16
  Tensor out;                    // (T, D) float32
  // (S) int32, or empty. The tokens that sample() drew in the step before: the host need not know them yet.
  Tensor drawn = {};

  // The id to take for out[t], where `drawn` is in host memory.
  int64_t id_of(int64_t t) const {
    const int32_t id = ids[static_cast<size_t>(t)];
    return id >= 0 ? id : std::max(drawn.as<const int32_t>()[-1 - id], 0);
  }
};

void check_params(const EmbedParams& params);

}  // namespace troupe
