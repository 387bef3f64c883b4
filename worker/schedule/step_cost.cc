// seconds ≈ w · (1, prefill tokens, decodes, decode context, prefill pairs, scored rows), w ≥ 0, by least
// squares in which a step counts less by half a percent for every step after it. Two things keep it sane:
//   - long stretches without prefill say nothing about prefill: a weak pull towards the last weights keeps
//     what was known where nothing new is seen;
//   - a step that took far longer than expected (the machine was busy elsewhere) counts less: beyond three
//     times the usual miss its weight falls with its distance.
// A machine is not linear (a chunk may be free up to a size); the fit is of the neighbourhood it works in,
// which is what matters. Cost: six equations a step, below a microsecond.

#include "worker/schedule/step_cost.h"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr double kKept = 0.995;
constexpr double kPull = 1e-3;
constexpr double kMissKept = 0.95;
constexpr double kMissesOfMargin = 2;

}  // namespace

// In units that make typical values near one.
StepCost::Vector StepCost::features_of(const StepLoad& load) {
  return {1.0,
          static_cast<double>(load.prefill_tokens) / 256.0,
          static_cast<double>(load.decode_count) / 64.0,
          static_cast<double>(load.decode_context_tokens) / 65536.0,
          static_cast<double>(load.prefill_pairs) / (256.0 * 4096.0),
          static_cast<double>(load.scored_rows) / 32.0};
}

double StepCost::seconds(const StepLoad& load) const {
  const Vector x = features_of(load);
  double sum = 0;
  for (size_t i = 0; i < kFeatures; ++i) sum += weights_[i] * x[i];
  return sum;
}

void StepCost::observe(const StepLoad& load, double observed) {
  if (!(observed > 0)) return;
  const double expected = seconds(load);
  const double miss = expected > 0 ? std::abs(observed / expected - 1) : miss_;
  const auto prefill_tokens = static_cast<double>(load.prefill_tokens);
  const auto scored_rows = static_cast<double>(load.scored_rows);
  // The first of its size is expected wrongly: that it took long is news, not a busy neighbour.
  const bool is_new = observed_count_ < 16 || prefill_tokens > prefill_seen_ || scored_rows > scored_seen_;
  const double weight = is_new ? 1 : std::min(1.0, 3 * std::max(miss_, 0.01) / std::max(miss, 1e-9));
  miss_ = kMissKept * miss_ + (1 - kMissKept) * std::min(miss, 4 * std::max(miss_, 0.01));
  // Relative misses matter, not absolute ones: each step is fitted in units of its own duration.
  const double unit = weight / (observed * observed);
  const Vector x = features_of(load);
  for (size_t i = 0; i < kFeatures; ++i) {
    for (size_t j = 0; j < kFeatures; ++j) products_[i][j] = products_[i][j] * kKept + unit * x[i] * x[j];
    targets_[i] = targets_[i] * kKept + unit * x[i] * observed;
  }
  ++observed_count_;
  prefill_seen_ = std::max(prefill_seen_, prefill_tokens);
  scored_seen_ = std::max(scored_seen_, scored_rows);
  solve();
}

// Least squares without negative weights: what comes out negative is set to zero and the rest solved again.
void StepCost::solve() {
  std::array<bool, kFeatures> used;
  used.fill(true);
  // A pull in proportion to what each feature was worth lately, and never nothing: one that is new is learned
  // from its first steps, however many there were without it.
  Vector pull;
  for (size_t i = 0; i < kFeatures; ++i) pull[i] = std::max(kPull * products_[i][i], 1e-12);
  for (size_t round = 0; round < kFeatures; ++round) {
    std::array<Vector, kFeatures> a{};
    Vector w{};
    for (size_t i = 0; i < kFeatures; ++i) {
      for (size_t j = 0; j < kFeatures; ++j) a[i][j] = used[i] && used[j] ? products_[i][j] : 0;
      a[i][i] += used[i] ? pull[i] : 1;
      w[i] = used[i] ? targets_[i] + pull[i] * weights_[i] : 0;
    }
    // Gauss elimination; symmetric and positive definite, so no pivoting.
    for (size_t i = 0; i < kFeatures; ++i) {
      for (size_t k = i + 1; k < kFeatures; ++k) {
        const double factor = a[k][i] / a[i][i];
        for (size_t j = i; j < kFeatures; ++j) a[k][j] -= factor * a[i][j];
        w[k] -= factor * w[i];
      }
    }
    for (size_t i = kFeatures; i-- > 0;) {
      for (size_t j = i + 1; j < kFeatures; ++j) w[i] -= a[i][j] * w[j];
      w[i] /= a[i][i];
    }
    bool negative = false;
    for (size_t i = 0; i < kFeatures; ++i) {
      if (w[i] >= 0) continue;
      used[i] = false;
      negative = true;
    }
    if (negative) continue;
    weights_ = w;
    return;
  }
}

int32_t StepCost::chunk_within(double budget_seconds, const StepLoad& base, const Chunk& chunk) const {
  const double limit = budget_seconds / (1 + kMissesOfMargin * miss_);
  const auto fits = [&](int32_t count) {
    StepLoad load = base;
    load.add_prefill(chunk.start, count);
    if (chunk.scored) load.scored_rows += count;
    return static_cast<double>(load.prefill_tokens) <= 2 * prefill_seen_ &&
           static_cast<double>(load.scored_rows) <= 2 * scored_seen_ && seconds(load) <= limit;
  };
  if (chunk.wanted <= 0 || fits(chunk.wanted)) return std::max(chunk.wanted, 0);
  int32_t low = 0, high = chunk.wanted;  // low fits (or is nothing), high does not
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace troupe
