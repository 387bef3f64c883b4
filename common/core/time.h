#pragma once

// Time as a value. Pure code (gateway/route, worker/schedule) gets `TimePoint now` as an argument and never
// asks a clock; the simulator makes TimePoints of its own. Only programs and common/net own a Clock.

#include <chrono>

namespace troupe {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// End of a request's time. It travels as a remaining duration (x-troupe-timeout-ms), never as a wall time.
struct Deadline {
  TimePoint at = TimePoint::max();

  static Deadline after(TimePoint now, Duration timeout) { return {now + timeout}; }
  static Deadline never() { return {}; }
  bool is_never() const { return at == TimePoint::max(); }
  bool expired(TimePoint now) const { return now >= at; }
  // Zero when expired; Duration::max() without a deadline.
  Duration remaining(TimePoint now) const {
    if (is_never()) return Duration::max();
    return expired(now) ? Duration::zero() : at - now;
  }
};

}  // namespace troupe
