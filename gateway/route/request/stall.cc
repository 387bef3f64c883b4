#include "gateway/route/request/stall.h"

#include <algorithm>

namespace troupe::route {

Duration patience(const StallOptions& options, bool ours) {
  if (ours) return options.silence_max;
  const Duration silence = options.foreign_silence_max, stall = options.foreign_stall_max;
  if (silence == Duration::zero() || stall == Duration::zero()) return std::max(silence, stall);
  return std::min(silence, stall);
}

// Ours: a stream that has brought heartbeats hangs. Before its head a worker may still be reading a long
// prompt, so there probes, sent now, or other streams must agree. A stream without heartbeats is given up
// where probes have found the worker dead.
//
// Servers of another kind may compute on the very thread that should answer probes, so probes alone end
// nothing. But a stream has something to say once in that time; a whole answer may take it to be computed, so
// there probes must agree. One that has begun and stalls for long is given up whatever the probes say, so
// that its client is told before the request's time is over.
StallVerdict check_stall(const StallCheck& check, bool stalled) {
  StallVerdict verdict;
  const NodeStanding& node = check.node;
  if (node.ours) {
    verdict.hangs = node.dead;
    if (check.heartbeats_asked && check.heartbeats_seen) {
      verdict.hangs = verdict.blamed = true;
    } else if (check.heartbeats_asked && node.heartbeats) {
      verdict.hangs = node.dead || node.suspect;
      verdict.ask_after = true;
    }
    return verdict;
  }
  verdict.ask_after = true;
  verdict.hangs = check.stream || node.suspect || node.dead || stalled;
  verdict.blamed = check.stream || stalled;
  verdict.hopeless = node.dead || stalled;
  return verdict;
}

StallVerdict StallWatch::silent(const StallOptions& options, const StallCheck& check, size_t bytes) {
  if (check.node.ours) return check_stall(check, false);
  if (bytes != bytes_) silent_ = Duration::zero();
  bytes_ = bytes;
  silent_ += patience(options, false);
  const bool stalled =
      check.began && options.foreign_stall_max > Duration::zero() && silent_ >= options.foreign_stall_max;
  // The shorter of the two bounds may be the one that does not apply.
  const bool heeded =
      options.foreign_silence_max > Duration::zero() && silent_ >= options.foreign_silence_max;
  return stalled || heeded ? check_stall(check, stalled) : StallVerdict();
}

}  // namespace troupe::route
