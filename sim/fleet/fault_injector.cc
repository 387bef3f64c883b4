#include "sim/fleet/fault_injector.h"

#include "common/settings/option_checks.h"

namespace troupe::sim {

void FaultInjector::post_all() {
  const std::vector<Fault>& faults = parts_.options.faults;
  for (size_t i = 0; i < faults.size(); ++i)
    parts_.events.post(parts_.events.now() + millis(faults[i].at_s * 1e3), EventKind::kFault,
                       static_cast<int32_t>(i));
}

void FaultInjector::begin(size_t index) {
  const Fault& fault = parts_.options.faults[index];
  apply(fault);
  if (fault.for_s > 0)
    parts_.events.post(parts_.events.now() + millis(fault.for_s * 1e3), EventKind::kFaultEnd,
                       static_cast<int32_t>(index));
}

void FaultInjector::apply(const Fault& fault) {
  const TimePoint now = parts_.events.now(), until = now + millis(fault.for_s * 1e3);
  const auto node = static_cast<route::NodeIndex>(fault.target);
  parts_.recorder.fault(now.time_since_epoch());
  switch (fault.kind) {
    case Fault::Kind::kKill:
      return kill(node);
    case Fault::Kind::kReturn:
      return restart(node);
    case Fault::Kind::kJoin:
      return join(fault.target);
    case Fault::Kind::kDrain:
      return drain(node, until);
    case Fault::Kind::kSlow:
      if (parts_.fleet[node].engine == nullptr) return;
      parts_.fleet.interrupt(node);
      return parts_.fleet.slow_down(node, fault.factor);
    case Fault::Kind::kStall:
      if (parts_.fleet.stall(node, until)) parts_.streams.watch_all_at(node);
      return;
    case Fault::Kind::kLoseReports:
      return parts_.fleet.lose_reports(node, until);
    case Fault::Kind::kLoseResidency:
      return parts_.residency.lose_next(node);
    case Fault::Kind::kRestartGateway:
      return restart_gateway(static_cast<size_t>(fault.target));
  }
}

void FaultInjector::end(size_t index) {
  const Fault& fault = parts_.options.faults[index];
  const auto node = static_cast<route::NodeIndex>(fault.target);
  if (parts_.fleet[node].engine == nullptr) return;
  if (fault.kind == Fault::Kind::kDrain) return kill(node);
  if (fault.kind == Fault::Kind::kStall) return end_stall(node);
  parts_.fleet.interrupt(node);
  if (fault.kind == Fault::Kind::kSlow) parts_.fleet.slow_down(node, 1);
}

void FaultInjector::kill(route::NodeIndex node) {
  parts_.streams.note_progress_at(node);
  parts_.handover.node_stopped(node);
  parts_.events.post(parts_.events.now() + millis(parts_.options.detect_ms), EventKind::kDetect,
                     static_cast<int32_t>(node), parts_.fleet[node].incarnation);
  parts_.fleet.stop(node);
  parts_.residency.node_stopped(node);
  pool_changed();
}

void FaultInjector::restart(route::NodeIndex node) {
  parts_.fleet.restart(node);
  pool_changed();
  parts_.residency.begin_empty(node);
  parts_.events.post(parts_.events.now() + millis(parts_.options.join_ms), EventKind::kSeen,
                     static_cast<int32_t>(node), parts_.fleet[node].incarnation);
}

void FaultInjector::join(int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    parts_.fleet.join();
    parts_.residency.begin_empty(static_cast<route::NodeIndex>(parts_.fleet.size() - 1));
  }
  pool_changed();
  parts_.gateways.nodes_joined(count);
}

void FaultInjector::drain(route::NodeIndex node, TimePoint until) {
  parts_.fleet.drain(node);
  parts_.gateways.node_gives_notice(node, until);
  parts_.handover.keep_going();
}

void FaultInjector::stop_drained() {
  for (route::NodeIndex node = 0; node < parts_.fleet.size(); ++node) {
    if (parts_.fleet[node].drains && parts_.handover.has_left(node)) kill(node);
  }
}

void FaultInjector::end_stall(route::NodeIndex node) {
  if (parts_.fleet.stands_still(node)) return;  // by another fault
  parts_.fleet.interrupt(node);
  for (const uint64_t id : parts_.fleet.stall_ends(node)) parts_.requests.deliver(id);
  parts_.fleet.begin_step(node);
}

void FaultInjector::restart_gateway(size_t gateway) {
  parts_.handover.gateway_restarts(gateway);
  parts_.gateways[gateway].restart(parts_.events.now());
  parts_.requests.admission().restart(gateway);
}

// The bound has as much memory as the nodes that are up.
void FaultInjector::pool_changed() {
  parts_.recorder.pool_changed(parts_.fleet.up() * parts_.options.profile.kv_cache_tokens);
}

}  // namespace troupe::sim
