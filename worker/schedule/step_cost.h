#pragma once

// The cost of a step on this machine with this model, learned online from the steps that were taken. It says
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
  struct Chunk {
    int32_t start = 0;
    int32_t wanted = 0;   // tokens
    bool scored = false;  // every row of it
  };
  // Returns how many of a chunk's tokens `base` can take in and still end within `budget_seconds`, with a
  // margin for the usual error of the forecast. Never more than twice the largest prefill observed (64 to
  // begin with), nor than twice the most rows scored (16): the cost of larger ones is not known.
  int32_t chunk_within(double budget_seconds, const StepLoad& base, const Chunk& chunk) const;

 private:
  static constexpr size_t kFeatures = 6;
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
  double scored_seen_ = 8;
};

}  // namespace troupe
