#pragma once

// Is a node alive, and does it do its work? A state machine fed with what probes and requests saw; it owns no
// clock and sends nothing.
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
// A suspect is still routable, after all others: one lost probe moves no set. Failures count whatever
// saw them, so under traffic a dead node is known dead within a few requests, not after dead_after probe
// intervals.
//
// Silence alone makes a suspect and never a dead node: all streams of a node that is held up for half a
// second fall silent at once, and probes, asked for at once, distinguish that from a hang.
//
// A node may pass its probes and fail at every request. After errors_max such answers in a row, to any
// clients, it is *failing*: a suspect that good probes do not clear, and home to no set. An answer in full
// clears it; or else after a pause it is tried again, and the first error makes the next pause twice as long.

#include <cstdint>
#include <string_view>

#include "common/core/time.h"
#include "gateway/route/fleet/view.h"

namespace troupe::route {

enum class HealthEvent : uint8_t {
  kProbeOk,
  kProbeNotReady,   // the node answered and said it takes no requests
  kProbeFail,       // no answer in time, or none that makes sense
  kConnectError,    // a request could not connect
  kTransportError,  // a request was sent and its connection broke
  kSilent,          // a request's node has said nothing for longer than it ever should
  kAnswered,        // a request was answered in full
  kRefused,         // a request was answered in full, and it was the request's fault
  kErrored,         // a request's answer says that the node failed
};
// For the log, where nothing more is known of it.
std::string_view reason_of(HealthEvent event);

struct HealthOptions {
  int dead_after = 3;   // failures in a row
  int alive_after = 1;  // successful probes in a row, out of dead
  int errors_max = 5;   // in a row, to be failing
  Duration errors_for = std::chrono::seconds(10);
  Duration errors_for_max = std::chrono::minutes(5);
};

class NodeHealth {
 public:
  explicit NodeHealth(HealthOptions options = {}) : options_(options) {}
  void change(const HealthOptions& options) { options_ = options; }
  // True when the state changed, or whether it is failing.
  bool on_event(HealthEvent event, TimePoint now);
  NodeState state() const { return state_; }
  TimePoint since() const { return since_; }  // of the state
  int failures() const { return failures_; }
  bool failing() const { return failing_; }
  // A probe should be sent at once rather than at the next interval: something was just seen to fail.
  bool wants_probe() const { return state_ == NodeState::kSuspect && !failing_; }

 private:
  bool become(NodeState state, TimePoint now);
  bool on_probe_ok(TimePoint now);
  bool on_answer();
  bool on_error(TimePoint now);
  HealthOptions options_;
  NodeState state_ = NodeState::kUnknown;
  TimePoint since_{};
  int failures_ = 0;
  int successes_ = 0;
  int errors_ = 0;  // in a row
  bool failing_ = false;
  TimePoint failing_until_{};
  Duration pause_{};  // the last one; zero: it has answered since
};

}  // namespace troupe::route
