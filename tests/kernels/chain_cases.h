#pragma once

// Rows with chains of samplers: each by itself, or several in any order.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/sampler_chain.h"

namespace troupe::kernel_testing {

struct ChainCase {
  std::vector<float> logits;
  DrawParams draw;
  SamplerChain chain;
  float mu = 0;
  std::vector<LogitEdit> edits = {};

  SampleRow row() {
    SampleRow row{.draw = draw, .penalties = {1.2f, 0.3f, 0.1f}, .edits = edits};
    row.chain = &chain;
    row.mirostat_mu = &mu;
    return row;
  }
};

class ChainCases {
 public:
  explicit ChainCases(uint32_t seed = 11) : random_(seed) {}
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  double uniform(double low, double high) {
    return low + (high - low) * std::uniform_real_distribution<double>()(random_);
  }
  float real(double low, double high) { return static_cast<float>(uniform(low, high)); }

  std::vector<float> logits(size_t vocab) {
    std::normal_distribution<float> normal(0.0f, one_of({0.5f, 1.5f, 3.0f, 6.0f}));
    std::vector<float> row(vocab);
    for (float& logit : row) logit = normal(random_);
    return row;
  }
  // One sampler by itself.
  ChainCase single(Sampler sampler, size_t vocab) {
    ChainCase c{logits(vocab), {.seed = random_(), .position = random_() % 500}, {}};
    switch_on(sampler, c);
    return c;
  }
  // Several, in any order.
  ChainCase several(size_t vocab) {
    ChainCase c{logits(vocab), {.seed = random_(), .position = random_() % 500}, {}};
    for (size_t i = 0; i < kSamplerCount; ++i) {
      if (random_() % 3 == 0) switch_on(static_cast<Sampler>(i), c);
    }
    if (random_() % 2 == 0) std::shuffle(c.chain.order.begin(), c.chain.order.end(), random_);
    if (random_() % 5 == 0) {
      c.chain.mirostat = one_of({1, 2});
      c.chain.mirostat_tau = real(1, 8);
      c.mu = real(1, 12);
    }
    for (int32_t id = 0; id < std::min<int32_t>(static_cast<int32_t>(vocab), 40); ++id)
      c.edits.push_back({id, one_of({-1, 0, 2}), 0, one_of({0.0f, 1.5f})});
    return c;
  }

 private:
  void switch_on(Sampler sampler, ChainCase& c) {
    SamplerChain& chain = c.chain;
    switch (sampler) {
      case Sampler::kPenalties:
        return;  // where the order says so
      case Sampler::kTopK:
        c.draw.top_k = one_of({1, 3, 40, 6000});
        return;
      case Sampler::kTopA:
        chain.top_a = real(0.01, 1);
        return;
      case Sampler::kTfs:
        chain.tfs = real(0.3, 0.99);
        return;
      case Sampler::kTypicalP:
        chain.typical_p = real(0.1, 0.99);
        return;
      case Sampler::kEpsilon:
        chain.epsilon = real(1e-4, 9e-3);
        return;
      case Sampler::kEta:
        chain.eta = real(1e-4, 9e-3);
        return;
      case Sampler::kTopP:
        c.draw.top_p = real(0.1, 0.99);
        return;
      case Sampler::kMinP:
        c.draw.min_p = real(0.01, 0.5);
        return;
      case Sampler::kTemperature:
        c.draw.temperature = real(0.3, 2.5);
        if (random_() % 2 == 0) return;
        chain.has_dynamic_temperature = true;
        chain.dynatemp_low = real(0, 1);
        chain.dynatemp_high = real(1, 3);
        chain.dynatemp_exponent = real(0.3, 3);
        return;
      case Sampler::kSmoothing:
        chain.smoothing_factor = real(0.05, 2);
        chain.smoothing_curve = one_of({1.0f, 1.0f, 2.5f, 4.5f});
        return;
      case Sampler::kXtc:
        chain.xtc_probability = real(0.2, 1);
        chain.xtc_threshold = one_of({0.02f, 0.1f, 0.3f, 0.6f});
        return;
    }
  }

  std::mt19937 random_;
};

}  // namespace troupe::kernel_testing
