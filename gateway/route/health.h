#pragma once

// Is a node alive? A state machine fed with what probes and requests saw; it owns no clock and sends nothing.
//
//   unknown ──ok──▶ alive ◀──ok ×alive_after── dead
//      │              │ any failure               ▲
//      └──fail──▶     ▼                           │
//    dead          suspect ──dead_after failures──┘      (suspect ──ok──▶ alive)
//   any ──"not ready" answer──▶ draining ──ok──▶ alive
//
// An answered request is a sign of life too: it clears a suspicion, so that a worker busy enough to miss
// probes isn't declared dead while it answers. Only a probe brings the dead back.
//
// A suspect is still routable, after all others: one lost probe moves nobody's set. Failures count whatever
// saw them, so under traffic a dead node is known dead within a few requests, not after dead_after probe
// intervals.

#include <cstdint>

#include "common/core/time.h"
#include "gateway/route/view.h"

namespace troupe::route {

enum class HealthEvent : uint8_t {
  kProbeOk,
  kProbeNotReady,   // the node answered and said it takes no requests
  kProbeFail,       // no answer in time, or none that makes sense
  kConnectError,    // a request could not connect
  kTransportError,  // a request was sent and its connection broke
  kAnswered,        // a request was answered in full
};

struct HealthOptions {
  int dead_after = 3;   // failures in a row
  int alive_after = 1;  // successful probes in a row, out of dead
};

class NodeHealth {
 public:
  explicit NodeHealth(HealthOptions options = {}) : options_(options) {}
  // True when the state changed.
  bool on_event(HealthEvent event, TimePoint now);
  NodeState state() const { return state_; }
  TimePoint since() const { return since_; }  // of the state
  int failures() const { return failures_; }
  // A probe should be sent at once rather than at the next interval: something was just seen to fail.
  bool wants_probe() const { return state_ == NodeState::kSuspect; }

 private:
  bool become(NodeState state, TimePoint now);
  HealthOptions options_;
  NodeState state_ = NodeState::kUnknown;
  TimePoint since_{};
  int failures_ = 0;
  int successes_ = 0;
};

}  // namespace troupe::route
