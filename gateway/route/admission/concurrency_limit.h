#pragma once

// Concurrency limit without a queue: a request that finds no place is refused with a time when one may be
// free. That time is computed as in the queue (drain_rate.h): from how fast places have become free lately
// while all were taken, and from how many requests were refused before and are to come back first. With too
// few observations it is the time since a place last became free.
//
// Time is an argument. Not thread-safe.

#include <algorithm>
#include <cstdint>

#include "common/core/time.h"
#include "gateway/route/admission/drain_rate.h"

namespace troupe::route {

class ConcurrencyLimit {
 public:
  // `most`: number of places, 0: unlimited. False: all are taken, and reject() returns the wait.
  bool enter(int64_t most, TimePoint now) {
    most_ = most;
    if (full()) return false;
    freed_.advance(false, now);
    taken_ += 1;
    return true;
  }
  void leave(TimePoint now) {
    freed_.advance(full(), now);
    if (full()) freed_.let_in(1);
    taken_ -= 1;
    turned_away_ = std::max<int64_t>(turned_away_ - 1, 0);
  }
  // Returns the wait in whole seconds, at least one.
  Duration reject(TimePoint now) {
    freed_.advance(true, now);
    const auto rate = freed_.rate();
    const double ahead = static_cast<double>(turned_away_ + 1);
    const auto wait = rate ? seconds_at_most_a_day(ahead / *rate) : freed_.stalled();
    const Duration retry_after = come_back_after(wait);
    if (retry_after < kComeBackMax) turned_away_ += 1;
    return retry_after;
  }
  int64_t taken() const { return taken_; }

 private:
  bool full() const { return most_ > 0 && taken_ >= most_; }

  int64_t most_ = 0, taken_ = 0;
  int64_t turned_away_ = 0;  // refused, less the places that became free since
  DrainRate freed_;          // "tokens" are places
};

}  // namespace troupe::route
