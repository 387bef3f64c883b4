#pragma once

// Tests whether the sampler's draws fit a distribution. Seeds are fixed, so the result never varies.

#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/model/sampler.h"

namespace troupe {

struct ChiSquared {
  double chi_squared = 0;
  double limit = 0;  // exceeded by chance once in a million (Wilson-Hilferty)
  int impossible = 0;
};

// Draws at positions 0, 1, 2, … against their exact distribution.
inline ChiSquared fit_draws(const std::vector<double>& expected, const std::vector<float>& logits,
                            const SamplingParams& params, int draw_count = 200000) {
  std::vector<int> seen(logits.size(), 0);
  for (int i = 0; i < draw_count; ++i) {
    ++seen[static_cast<size_t>(sample_token(logits, params, static_cast<uint64_t>(i)))];
  }
  ChiSquared result;
  double rest_expected = 0;
  double rest_seen = 0;
  int cells = 0;
  const auto add = [&](double want, double got) {
    result.chi_squared += (got - want) * (got - want) / want;
    ++cells;
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    const double want = expected[i] * draw_count;
    if (expected[i] == 0) {
      result.impossible += seen[i];
    } else if (want < 10) {  // too few for χ²: one cell together
      rest_expected += want;
      rest_seen += seen[i];
    } else {
      add(want, seen[i]);
    }
  }
  if (rest_expected >= 10) add(rest_expected, rest_seen);
  const double freedom = std::max(1, cells - 1);
  const double root = 1 - 2 / (9 * freedom) + 4.7534 * std::sqrt(2 / (9 * freedom));
  result.limit = freedom * root * root * root;
  return result;
}

}  // namespace troupe
