#pragma once

// The samplers whose place in the order a request may say: what its fields name, and what a draw applies.

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe {

// Cuts and changes of logits; kernels/sampler_chain.h has their formulas.
enum class Sampler : uint8_t {
  kPenalties,
  kTopK,
  kTopA,
  kTfs,
  kTypicalP,
  kEpsilon,
  kEta,
  kTopP,
  kMinP,
  kTemperature,
  kSmoothing,
  kXtc,
};
inline constexpr size_t kSamplerCount = 12;
using SamplerOrder = std::array<Sampler, kSamplerCount>;  // each once
// koboldcpp's, its [6, 0, 1, 3, 4, 2, 5] and then XTC; what it does not have stands beside its kin.
inline constexpr SamplerOrder kDefaultSamplerOrder = {
    Sampler::kPenalties, Sampler::kTopK,        Sampler::kTopA,      Sampler::kTfs,
    Sampler::kTypicalP,  Sampler::kEpsilon,     Sampler::kEta,       Sampler::kTopP,
    Sampler::kMinP,      Sampler::kTemperature, Sampler::kSmoothing, Sampler::kXtc};

}  // namespace troupe
