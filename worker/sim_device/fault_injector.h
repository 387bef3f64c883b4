#pragma once

// Injects faults into a worker without a model: POST /sim/faults sets what goes wrong from now on. Random
// choices (which requests fail) depend on the seed and the order of requests alone, so a test sees the same
// faults every time.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/core/metrics.h"
#include "common/core/mutex.h"
#include "common/core/time.h"

namespace troupe {

// The body of POST /sim/faults; an absent field turns its fault off.
struct SimFaultSettings {
  double stall_s = 0;          // no step ends for this long, the one under way included; connections stay up
  double slow_factor = 1;      // every step takes this many times as long
  double drop_rate = 0;        // share of requests whose connection is closed in the middle of the answer
  double error_rate = 0;       // share of requests that get error_status instead of an answer
  int64_t error_status = 503;  // 500 to 599
  bool refuse = false;         // not ready; every new request gets 503
  int64_t seed = 0;

  std::string to_json() const;
};
// Errors are 400, naming the field and the right value; unknown fields are refused.
ApiResult<SimFaultSettings> parse_sim_faults(std::string_view body);

// Thread-safe: set by the server's thread, read by that and by the compute thread.
class SimFaults {
 public:
  // Counts injected faults as troupe_sim_faults_total{kind}.
  explicit SimFaults(Metrics& metrics);

  void set(const SimFaultSettings& settings, TimePoint now);
  void clear(TimePoint now) { set({}, now); }
  SimFaultSettings settings() const;

  // Draws the next request's faults.
  struct Fate {
    int error_status = 0;      // not 0: its answer
    int dropped_at_write = 0;  // not 0: the write that closes the connection
  };
  Fate next_fate();
  bool refuses() const;

  // Waits until a step that began at `begin` and takes `duration` on a healthy node has ended; returns the
  // time at which that was due.
  TimePoint wait_step_end(TimePoint begin, Duration duration);

 private:
  TimePoint step_end(TimePoint begin, Duration duration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Counter& errors_;
  Counter& drops_;
  const SteadyClock clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  SimFaultSettings settings_ ABSL_GUARDED_BY(mutex_);
  TimePoint stalled_until_ ABSL_GUARDED_BY(mutex_) = TimePoint::min();
  uint64_t request_count_ ABSL_GUARDED_BY(mutex_) = 0;  // since set()
};

}  // namespace troupe
