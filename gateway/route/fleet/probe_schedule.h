#pragma once

// When a node is probed: every interval, counted from the last probe's begin; and at once where a failure was
// seen or a request waits for the answer, but never more often than the suspicion interval. A probe runs by
// itself: the next one begins after its end.
//
// One gateway's schedule of one node. Sans-io: a driver sends each probe that is due and reports its end;
// gateway/cluster/prober does so over sockets, sim/fleet/sim_prober on a virtual clock. Not thread-safe.

#include <chrono>

#include "common/core/time.h"

namespace troupe::route {

struct ProbeOptions {
  Duration interval = std::chrono::milliseconds(1000);           // between the begins of two
  Duration timeout = std::chrono::milliseconds(1000);            // without an answer by then it has failed
  Duration suspicion_interval = std::chrono::milliseconds(100);  // at most this often, whatever fails
};

class ProbeSchedule {
 public:
  // A probe is wanted at once; during one, too: what that finds may be older than the failure that was seen.
  void ask() { asked_ = true; }
  // When the next probe is to begin, as far as is known now. REQUIRES: one has begun; the first may at once.
  TimePoint due(const ProbeOptions& options) const {
    return begun_at_ + (asked_ ? options.suspicion_interval : options.interval);
  }
  bool under_way() const { return under_way_; }

  // REQUIRES: none is under way.
  void begin(TimePoint now) {
    begun_at_ = now;
    asked_ = false;
    under_way_ = true;
  }
  void end() { under_way_ = false; }

 private:
  TimePoint begun_at_{};
  bool asked_ = false;
  bool under_way_ = false;
};

}  // namespace troupe::route
