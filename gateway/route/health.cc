#include "gateway/route/health.h"

namespace troupe::route {

bool NodeHealth::become(NodeState state, TimePoint now) {
  if (state == state_) return false;
  state_ = state;
  since_ = now;
  return true;
}

bool NodeHealth::on_event(HealthEvent event, TimePoint now) {
  switch (event) {
    case HealthEvent::kProbeOk:
      failures_ = 0;
      successes_ += 1;
      if (state_ == NodeState::kDead && successes_ < options_.alive_after) return false;
      return become(NodeState::kAlive, now);
    case HealthEvent::kProbeNotReady:
      failures_ = 0;
      successes_ = 0;
      return become(NodeState::kDraining, now);
    case HealthEvent::kAnswered:
      if (state_ != NodeState::kAlive && state_ != NodeState::kSuspect) return false;
      failures_ = 0;
      return become(NodeState::kAlive, now);
    case HealthEvent::kProbeFail:
    case HealthEvent::kConnectError:
    case HealthEvent::kTransportError:
      successes_ = 0;
      failures_ += 1;
      if (state_ == NodeState::kUnknown || failures_ >= options_.dead_after)
        return become(NodeState::kDead, now);
      // A node that drains takes no new requests; that its old ones break says only that it may be gone soon.
      if (state_ == NodeState::kDraining || state_ == NodeState::kDead) return false;
      return become(NodeState::kSuspect, now);
  }
  return false;
}

}  // namespace troupe::route
