#pragma once

// A row and its chain of samplers (sampler_chain.h) as bytes, which a device can be sent.

#include <cstdint>

#include "kernels/logit_edit.h"
#include "kernels/sampler_params.h"

namespace troupe {

struct ChainRow {
  SamplerChain chain = {};            // but for its order
  Sampler order[kSamplerCount] = {};  // NOLINT: a device has no std::array
  bool has_late_penalties = false, is_xtc_rolled = false;
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  int32_t first_count = 0;  // tokens that the chain begins with, <= kChainTokensMax
  int32_t vocab = 0;
  LogitPenalties penalties = {};
  float mirostat_mu = 0;
  int32_t known = -1;   // SampleRow's
  uint64_t random = 0;  // counter_bits()
};

// Edits of penalties behind a cut, by token, sorted.
struct LateEdits {
  const LogitEdit* edits = nullptr;
  int32_t count = 0;
};

struct ChainDraw {
  int32_t id = -1;
  float mirostat_mu = 0;
};

}  // namespace troupe
