#pragma once

// The gateway's own computing time on a request, phase by phase: time on its own core, without waits (for
// room at the workers, a worker's answer, a slow client). A phase lasts from its enter() to the next enter()
// or pause(); code that is about to wait pauses. The kernel's work when a turn of the event loop sends all
// that came together (common/net/send_batcher.h) belongs to no single request: it is in the process' CPU time
// alone.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/core/time.h"

namespace troupe {

enum class Phase : uint8_t {
  kAdmit,   // a place at the gateway, the API key, its limits
  kParse,   // the body: reading, checks, canonical form, hash
  kChoose,  // set and node, a place at the workers, the record's arrival
  kSend,    // the worker's request: heads, ids to resume after
  kRelay,   // its answer: cutting and counting events, finding errors
  kSettle,  // feedback of the try, charges, the gateway's own answers
};
inline constexpr size_t kPhaseCount = 6;
std::string_view phase_name(Phase phase);

// Times of one request. Not thread-safe.
class PhaseTimes {
 public:
  void enter(Phase phase, TimePoint now) {
    pause(now);
    phase_ = phase;
    since_ = now;
    runs_ = true;
  }
  void pause(TimePoint now) {
    if (runs_) took_[static_cast<size_t>(phase_)] += now - since_;
    runs_ = false;
  }

  bool runs() const { return runs_; }
  // Zero: the phase was not reached.
  Duration of(Phase phase) const { return took_[static_cast<size_t>(phase)]; }
  Duration total() const;

 private:
  std::array<Duration, kPhaseCount> took_{};
  TimePoint since_{};
  Phase phase_ = Phase::kAdmit;
  bool runs_ = false;
};

}  // namespace troupe
