#pragma once

// Randomness as an argument of pure code: a seeded generator (splitmix64), so a simulation or a failed test
// can be repeated. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

#include <cstdint>

namespace troupe::route {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform in [0, n). REQUIRES: n > 0. (The bias of the product is below n / 2^64.)
  uint32_t below(uint32_t n) {
    return static_cast<uint32_t>((static_cast<uint64_t>(next() >> 32) * n) >> 32);
  }
  // Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace troupe::route
