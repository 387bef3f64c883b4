#pragma once

// So many at once, and nobody waits in line: who finds no place is told when one may be free for him. That is
// computed as in the queue (drain_rate.h): by how fast places have become free lately while all were taken,
// and by how many were turned away before and are to come back first. Where too little was seen to say, as
// long as nothing has become free.
//
// Time is an argument. Not thread-safe.

#include <algorithm>
#include <cstdint>

#include "common/core/time.h"
#include "gateway/route/admission/drain_rate.h"

namespace troupe::route {

class ConcurrencyLimit {
 public:
  // `most`: as many as there are, 0: endless. False: all are taken, and reject() says for how long.
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
  // In whole seconds, at least one.
  Duration reject(TimePoint now) {
    freed_.advance(true, now);
    const auto rate = freed_.rate();
    const double ahead = static_cast<double>(turned_away_ + 1);
    const auto wait = rate ? seconds_at_most_a_day(ahead / *rate) : freed_.stalled();
    const Duration told = come_back_after(wait);
    if (told < kComeBackMax) turned_away_ += 1;
    return told;
  }
  int64_t taken() const { return taken_; }

 private:
  bool full() const { return most_ > 0 && taken_ >= most_; }

  int64_t most_ = 0, taken_ = 0;
  int64_t turned_away_ = 0;  // and not outnumbered yet by places that became free
  DrainRate freed_;          // "tokens" are places
};

}  // namespace troupe::route
