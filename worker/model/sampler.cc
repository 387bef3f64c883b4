#include "worker/model/sampler.h"

#include "kernels/philox.h"

namespace troupe {

DrawParams draw_params(const SamplingParams& params, uint64_t position) {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .seed = params.seed,
          .position = position};
}

// A counter beyond every position, so no choice's seed equals a draw of another.
uint64_t choice_seed(uint64_t seed, uint32_t choice) {
  if (choice == 0) return seed;
  const PhiloxCounter bits =
      philox4x32_10({choice, 0, 0, 1}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{bits[1]} << 32 | bits[0];
}

double counter_uniform(uint64_t seed, uint64_t position) {
  return static_cast<double>(counter_bits(seed, position)) * 0x1p-53;
}

TokenId sample_token(std::span<const float> logits, const SamplingParams& params, uint64_t position) {
  return draw_token(logits, draw_params(params, position));
}

}  // namespace troupe
