#include "gateway/route/fleet/health.h"

#include <algorithm>

namespace troupe::route {

std::string_view reason_of(HealthEvent event) {
  switch (event) {
    case HealthEvent::kProbeOk:
      return "a probe was answered";
    case HealthEvent::kProbeNotReady:
      return "it says that it is not ready";
    case HealthEvent::kProbeFail:
      return "a probe failed";
    case HealthEvent::kConnectError:
      return "a request could not connect";
    case HealthEvent::kTransportError:
      return "a request's connection broke";
    case HealthEvent::kSilent:
      return "a request heard nothing of it";
    case HealthEvent::kAnswered:
    case HealthEvent::kRefused:
      return "a request was answered";
    case HealthEvent::kErrored:
      return "requests were answered with errors";
  }
  return "unknown";
}

bool NodeHealth::become(NodeState state, TimePoint now) {
  if (state == state_) return false;
  state_ = state;
  since_ = now;
  return true;
}

bool NodeHealth::on_probe_ok(TimePoint now) {
  failures_ = 0;
  successes_ += 1;
  if (state_ == NodeState::kDead && successes_ < options_.alive_after) return false;
  if (failing_ && now < failing_until_) return become(NodeState::kSuspect, now);
  const bool tried = failing_;
  if (tried) errors_ = options_.errors_max - 1;
  failing_ = false;
  return become(NodeState::kAlive, now) || tried;
}

// Earlier errors are forgiven: they count from here on.
bool NodeHealth::on_answer() {
  errors_ = 0;
  pause_ = {};
  const bool failed = failing_;
  failing_ = false;
  return failed;
}

bool NodeHealth::on_error(TimePoint now) {
  if (state_ != NodeState::kAlive && state_ != NodeState::kSuspect) return false;
  errors_ += 1;
  if (failing_ || errors_ < options_.errors_max) return false;
  pause_ = std::clamp(2 * pause_, options_.errors_for, options_.errors_for_max);
  failing_ = true;
  failing_until_ = now + pause_;
  become(NodeState::kSuspect, now);
  return true;
}

bool NodeHealth::on_event(HealthEvent event, TimePoint now) {
  switch (event) {
    case HealthEvent::kProbeOk:
      return on_probe_ok(now);
    case HealthEvent::kProbeNotReady:
      failures_ = 0;
      successes_ = 0;
      return become(NodeState::kDraining, now);
    case HealthEvent::kAnswered:
    case HealthEvent::kRefused: {
      if (state_ != NodeState::kAlive && state_ != NodeState::kSuspect) return false;
      failures_ = 0;
      const bool cleared = event == HealthEvent::kAnswered && on_answer();
      return (!failing_ && become(NodeState::kAlive, now)) || cleared;
    }
    case HealthEvent::kErrored:
      return on_error(now);
    case HealthEvent::kSilent:
      if (state_ != NodeState::kAlive) return false;
      successes_ = 0;
      return become(NodeState::kSuspect, now);
    case HealthEvent::kProbeFail:
    case HealthEvent::kConnectError:
    case HealthEvent::kTransportError:
      successes_ = 0;
      failures_ += 1;
      if (state_ == NodeState::kUnknown || failures_ >= options_.dead_after) {
        on_answer();
        return become(NodeState::kDead, now);
      }
      // A node that drains takes no new requests; that its old ones break says only that it may be gone soon.
      if (state_ == NodeState::kDraining || state_ == NodeState::kDead) return false;
      return become(NodeState::kSuspect, now);
  }
  return false;
}

}  // namespace troupe::route
