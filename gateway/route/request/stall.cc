#include "gateway/route/request/stall.h"

#include <algorithm>

namespace troupe::route {

// Soon enough to leave a dead one, and seldom enough to cost nothing.
constexpr Duration kForeignLook = std::chrono::seconds(1);

Duration silence_timeout(const StallOptions& options, bool is_troupe_worker) {
  if (is_troupe_worker) return options.silence_max;
  Duration look = kForeignLook;
  for (const Duration bound : {options.foreign_silence_max, options.foreign_stall_max})
    if (bound > Duration::zero()) look = std::min(look, bound);
  return look;
}

// Ours: a stream that has brought heartbeats hangs. Before its head a worker may still be reading a long
// prompt, so there probes, sent now, or other streams must agree. A stream without heartbeats is given up
// where probes have found the worker dead.
//
// Silence alone is no failure of a server of another kind: to give it up would add its load to the others'.
// Its probes say what it is; one that has begun and stalls for long is given up whatever they say, so that
// its client is told before the request's time is over.
StallVerdict check_stall(const StallCheck& check, const ForeignSilence& silence) {
  StallVerdict verdict;
  const NodeStatus& node = check.node;
  if (node.is_troupe_worker) {
    verdict.hangs = node.dead;
    if (check.heartbeats_asked && check.heartbeats_seen) {
      verdict.hangs = verdict.blamed = true;
    } else if (check.heartbeats_asked && node.heartbeats) {
      verdict.hangs = node.dead || node.suspect;
      verdict.probe_now = true;
    }
    return verdict;
  }
  verdict.probe_now = silence.over_silence_max || silence.stalled;
  verdict.hangs = node.dead || silence.stalled || (silence.over_silence_max && node.suspect);
  verdict.blamed = silence.stalled;
  verdict.hopeless = node.dead || silence.stalled;
  return verdict;
}

StallVerdict StallWatch::silent(const StallOptions& options, const StallCheck& check, size_t bytes) {
  if (check.node.is_troupe_worker) return check_stall(check, {});
  if (bytes != bytes_) silent_ = Duration::zero();
  bytes_ = bytes;
  silent_ += silence_timeout(options, false);
  ForeignSilence silence;
  silence.stalled =
      check.began && options.foreign_stall_max > Duration::zero() && silent_ >= options.foreign_stall_max;
  silence.over_silence_max =
      options.foreign_silence_max > Duration::zero() && silent_ >= options.foreign_silence_max;
  return check_stall(check, silence);
}

}  // namespace troupe::route
