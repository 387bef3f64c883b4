#pragma once

// Draws from the distributions that workloads use. Written out, not taken from <random>, because the standard
// leaves their algorithms open and the same seed must give the same trace everywhere.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "common/core/random.h"

namespace troupe::sim {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  uint64_t bits() { return random_.next(); }
  // [0, 1), 53 bits
  double uniform() { return static_cast<double>(random_.next() >> 11) * 0x1p-53; }
  int32_t below(int32_t n) { return static_cast<int32_t>(random_.below(static_cast<uint32_t>(n))); }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  // Box-Muller; the second normal of a pair is dropped, so that every draw costs the same two uniforms.
  double normal() {
    const double r = std::sqrt(-2 * std::log1p(-uniform()));
    return r * std::cos(2 * std::numbers::pi * uniform());
  }
  // By its mean (not its median): median = mean · exp(-σ²/2).
  double lognormal(double mean, double sigma) {
    return mean * std::exp(sigma * normal() - sigma * sigma / 2);
  }
  // Scale 1, so the mean is `shape`. Marsaglia and Tsang 2000; below 1 by way of shape + 1.
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(1 - uniform(), 1 / shape);
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log1p(-uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }
  // >= 1, with this mean >= 1.
  int32_t geometric(double mean) {
    if (mean <= 1) return 1;
    const double trials = std::log1p(-uniform()) / std::log1p(-1 / mean);
    return static_cast<int32_t>(std::min(trials, 1e6)) + 1;
  }

 private:
  route::Random random_;
};

// Ranks 0..n-1 with probability proportional to (rank + 1)^-exponent.
class Zipf {
 public:
  Zipf(int32_t n, double exponent) {
    cumulative_.reserve(static_cast<size_t>(n));
    double sum = 0;
    for (int32_t rank = 1; rank <= n; ++rank) cumulative_.push_back(sum += std::pow(rank, -exponent));
  }
  int32_t draw(Draw& draw) const {
    const double at = draw.uniform() * cumulative_.back();
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, at);
    return static_cast<int32_t>(found - cumulative_.begin());
  }

 private:
  std::vector<double> cumulative_;
};

}  // namespace troupe::sim
