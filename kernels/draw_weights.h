#pragma once

// The arithmetic of a draw, the same to the bit on the host and on a GPU: a token's weight is an integer,
//
//   w(l) = 2^40 · 2^(log2 e · (l - best) / temperature), rounded; the best token's is 2^40
//
// so sums do not depend on their order, and any number of threads that adds them up draws the same token. The
// power is a polynomial of single precision in a given order, without fused multiply-adds
// (kernels/CMakeLists.txt): relative error 2e-7, and a weight below 2^-41 of the best is zero.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace troupe {

inline constexpr int kFullWeightBits = 40;
inline constexpr uint64_t kFullWeight = uint64_t{1} << kFullWeightBits;
// Their weights' sum stays below 2^62.
inline constexpr int64_t kDrawVocabMax = int64_t{1} << 22;
// Bits of a draw's random number.
inline constexpr int kDrawBits = 53;

// A logit as it is compared: there is one zero.
TROUPE_HOST_DEVICE inline float clean_logit(float logit) {
  return logit + 0.0f;
}

// A key that sorts as the logits do. REQUIRES: clean, not NaN.
TROUPE_HOST_DEVICE inline uint32_t logit_key(float logit) {
  uint32_t bits;
  std::memcpy(&bits, &logit, sizeof(bits));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The logit of a key.
TROUPE_HOST_DEVICE inline float logit_of_key(uint32_t key) {
  const uint32_t bits = (key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key;
  float logit;
  std::memcpy(&logit, &bits, sizeof(bits));
  return logit;
}

// The key, and NaN is greater than all.
TROUPE_HOST_DEVICE inline uint32_t best_key(float logit) {
  return logit == logit ? logit_key(logit) : 0xffffffffu;
}
// Whether softmax has a meaning for a row whose greatest key is this: no logit is NaN or +inf, nor all -inf.
TROUPE_HOST_DEVICE inline bool is_drawable(uint32_t greatest) {
  return greatest > logit_key(-INFINITY) && greatest < logit_key(INFINITY);
}

// The order in which tokens are kept: by logit, among equals the lowest id.
TROUPE_HOST_DEVICE inline uint64_t draw_rank(uint32_t key, uint32_t id) {
  return uint64_t{key} << 32 | (0xffffffffu - id);
}
TROUPE_HOST_DEVICE inline uint32_t key_of_rank(uint64_t rank) {
  return static_cast<uint32_t>(rank >> 32);
}
TROUPE_HOST_DEVICE inline uint32_t id_of_rank(uint64_t rank) {
  return 0xffffffffu - static_cast<uint32_t>(rank);
}

// log2 e / temperature. REQUIRES: temperature > 0
inline float draw_scale(float temperature) {
  const float scale = 1.44269504f / temperature;
  return scale < FLT_MAX ? scale : FLT_MAX;
}

// REQUIRES: clean logits, logit <= best, best finite
TROUPE_HOST_DEVICE inline uint64_t draw_weight(float logit, float best, float scale) {
  if (logit == best) return kFullWeight;
  const float x = (logit - best) * scale;
  if (!(x > -41.0f)) return 0;
  // 2^x = 2^n · 2^f with f in [-1/2, 1/2]: adding 1.5 · 2^23 rounds x to n. 2^f by its Taylor series, whose
  // eighth term is below 6e-9.
  constexpr float kRound = 12582912.0f;
  const float n = (x + kRound) - kRound;
  const float f = x - n;
  float p = 1.52527338e-5f;
  p = p * f + 1.54035304e-4f;
  p = p * f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  // In [0.7, 1.42): 24 bits are all it has.
  const auto mantissa = static_cast<uint64_t>(p * 16777216.0f);
  const int shift = static_cast<int>(n) + (kFullWeightBits - 24);
  return shift >= 0 ? mantissa << shift : mantissa >> -shift;
}

// The draw is of the first token at which the sum of weights passes this. < total. `random`: kDrawBits bits.
TROUPE_HOST_DEVICE inline uint64_t draw_target(uint64_t total, uint64_t random) {
  // total · random / 2^53 by halves of 32 bits: the product has 115 bits.
  const uint64_t a1 = total >> 32, a0 = total & 0xffffffffu;
  const uint64_t b1 = random >> 32, b0 = random & 0xffffffffu;
  const uint64_t low = a0 * b0;
  const uint64_t middle = a1 * b0 + (low >> 32);
  const uint64_t middle2 = a0 * b1 + (middle & 0xffffffffu);
  const uint64_t high = a1 * b1 + (middle >> 32) + (middle2 >> 32);
  const uint64_t bottom = middle2 << 32 | (low & 0xffffffffu);
  return high << (64 - kDrawBits) | bottom >> kDrawBits;
}

// The weight that the smallest set of best tokens with mass >= top_p must reach. REQUIRES: top_p < 1
TROUPE_HOST_DEVICE inline uint64_t nucleus_target(float top_p, uint64_t total) {
  if (!(top_p > 0)) return 1;
  const auto target = static_cast<uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(total)));
  return target > 1 ? target : 1;
}

// Tokens that weigh less than this are not in that set: all of them together weigh less than 1 - top_p of
// the total, so the others reach it without them. The last factor keeps the doubles' rounding on the safe
// side.
TROUPE_HOST_DEVICE inline uint64_t nucleus_cutoff(float top_p, uint64_t total, int64_t count) {
  const double rest = 1.0 - static_cast<double>(top_p > 0 ? top_p : 0.0f);
  return static_cast<uint64_t>(rest * static_cast<double>(total) / static_cast<double>(count) * (1 - 1e-9));
}

// Tokens below it are cut by min_p; at least 1, so a token without weight is never drawn.
TROUPE_HOST_DEVICE inline uint64_t least_weight(float min_p) {
  const double share = min_p < 1.0f ? static_cast<double>(min_p) : 1.0;
  const auto least =
      static_cast<uint64_t>(ceil((share > 0 ? share : 0.0) * static_cast<double>(kFullWeight)));
  return least > 1 ? least : 1;
}

}  // namespace troupe
