#pragma once

// What a step costs on this machine with this model: learned online from the steps that were taken, to tell
// how large a prefill chunk may be so that the decodes beside it do not wait too long. Pure; not thread-safe.

#include <array>
#include <cstddef>
#include <cstdint>

#include "worker/schedule/step_time.h"

namespace troupe {

class StepCost {
 public:
  void observe(const StepLoad& load, double seconds);
  // Expected duration. 0: nothing was observed yet.
  double seconds(const StepLoad& load) const;
  // Of a chunk that starts at `start`, how many of `wanted` tokens `base` can take in and still end within
  // `budget_seconds`, with a margin for what the model usually misses by. Never more than twice the largest
  // prefill observed (64 to begin with): what was not seen is not known.
  int32_t chunk_within(double budget_seconds, const StepLoad& base, int32_t start, int32_t wanted) const;

 private:
  static constexpr size_t kFeatures = 5;
  using Vector = std::array<double, kFeatures>;

  static Vector features_of(const StepLoad& load);
  void solve();

  // Sums over the past, fading: features × features, features × seconds.
  std::array<Vector, kFeatures> products_{};
  Vector targets_{};
  Vector weights_{};
  int64_t observed_count_ = 0;
  double miss_ = 0.25;  // usual |observed / expected - 1|
  double prefill_seen_ = 32;
};

}  // namespace troupe
