#pragma once

// Parameters of a chain of samplers, whose meaning and order sampler_chain.h tells.

#include <cstdint>

#include "common/core/sampler_order.h"

namespace troupe {

// Tokens that the chain begins with.
inline constexpr int32_t kChainTokensMax = 5000;

struct SamplerChain {
  SamplerOrder order = kDefaultSamplerOrder;
  float top_a = 0.0f;             // 0: off
  float tfs = 1.0f;               // 1: off
  float typical_p = 1.0f;         // 1: off
  float epsilon = 0.0f;           // a probability; 0: off
  float eta = 0.0f;               // the same
  float smoothing_factor = 0.0f;  // 0: off
  float smoothing_curve = 1.0f;
  // In place of the temperature where has_dynamic_temperature.
  bool has_dynamic_temperature = false;
  float dynatemp_low = 1.0f, dynatemp_high = 1.0f, dynatemp_exponent = 1.0f;
  float xtc_probability = 0.0f;  // 0: off
  float xtc_threshold = 0.1f;
  int32_t mirostat = 0;  // 0: off; 1, 2
  float mirostat_tau = 5.0f, mirostat_eta = 0.1f;

  // Whether penalties come behind another sampler, so that they are no edits of the row.
  bool has_late_penalties() const { return order.front() != Sampler::kPenalties; }
  bool operator==(const SamplerChain&) const = default;
};

}  // namespace troupe
