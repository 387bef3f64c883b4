#pragma once

// The client's waits for a peer. Private to common/net.

#include <algorithm>
#include <functional>
#include <utility>

#include "common/core/time.h"
#include "common/net/channel.h"

namespace troupe {

// How long to wait for a peer: until the deadline, or until it is silent and given up.
class SilenceTimeout {
 public:
  enum class Verdict { kWait, kDeadline, kGivenUp };

  // See ClientRequest.
  SilenceTimeout(Duration silence_timeout, std::function<bool()> give_up, Deadline deadline)
      : deadline_(deadline.at), silence_timeout_(silence_timeout), give_up_(std::move(give_up)) {}

  // Restarts the silence before each wait, which ends at `by` at the latest.
  void begin(Channel& channel, TimePoint by = TimePoint::max()) const {
    TimePoint end = std::min(deadline_, by);
    if (silence_timeout_ > Duration::zero())
      end = std::min(end, std::chrono::steady_clock::now() + silence_timeout_);
    channel.set_deadline(end);
  }
  bool over() const { return std::chrono::steady_clock::now() >= deadline_; }
  // Called when the channel's deadline has passed.
  Verdict judge(Channel& channel) const {
    if (silence_timeout_ <= Duration::zero() || over()) return Verdict::kDeadline;
    // A delayed event loop handles its timers before all of its sockets.
    if (channel.has_unread() || !give_up_ || !give_up_()) return Verdict::kWait;
    return Verdict::kGivenUp;
  }

 private:
  TimePoint deadline_;
  Duration silence_timeout_;
  std::function<bool()> give_up_;
};

}  // namespace troupe
