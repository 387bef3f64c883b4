#include "sim/fleet/fault_injector.h"

#include "common/settings/option_checks.h"

namespace troupe::sim {

void FaultInjector::post_all() {
  const std::vector<Fault>& faults = world_.options.faults;
  for (size_t i = 0; i < faults.size(); ++i)
    world_.events.post(world_.events.now() + millis(faults[i].at_s * 1e3), EventKind::kFault,
                       static_cast<int32_t>(i));
}

void FaultInjector::begin(size_t index) {
  const Fault& fault = world_.options.faults[index];
  apply(fault);
  if (fault.for_s > 0)
    world_.events.post(world_.events.now() + millis(fault.for_s * 1e3), EventKind::kFaultEnd,
                       static_cast<int32_t>(index));
}

void FaultInjector::apply(const Fault& fault) {
  const TimePoint now = world_.events.now(), until = now + millis(fault.for_s * 1e3);
  const auto node = static_cast<route::NodeIndex>(fault.target);
  world_.recorder.fault(now.time_since_epoch());
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
      if (world_.fleet[node].engine == nullptr) return;
      world_.fleet.interrupt(node);
      return world_.fleet.slow_down(node, fault.factor);
    case Fault::Kind::kStall:
      if (world_.fleet.stall(node, until)) world_.requests.streams_stall(node);
      return;
    case Fault::Kind::kLoseReports:
      return world_.fleet.lose_reports(node, until);
    case Fault::Kind::kLoseResidency:
      return world_.residency.lose_next(node);
    case Fault::Kind::kRestartGateway:
      return restart_gateway(static_cast<size_t>(fault.target));
  }
}

void FaultInjector::end(size_t index) {
  const Fault& fault = world_.options.faults[index];
  const auto node = static_cast<route::NodeIndex>(fault.target);
  if (world_.fleet[node].engine == nullptr) return;
  if (fault.kind == Fault::Kind::kDrain) return kill(node);
  if (fault.kind == Fault::Kind::kStall) return end_stall(node);
  world_.fleet.interrupt(node);
  if (fault.kind == Fault::Kind::kSlow) world_.fleet.slow_down(node, 1);
}

void FaultInjector::kill(route::NodeIndex node) {
  world_.requests.note_progress_at(node);
  world_.handover.node_stopped(node);
  world_.events.post(world_.events.now() + millis(world_.options.detect_ms), EventKind::kDetect,
                     static_cast<int32_t>(node), world_.fleet[node].incarnation);
  world_.fleet.stop(node);
  world_.residency.node_stopped(node);
  pool_changed();
}

void FaultInjector::restart(route::NodeIndex node) {
  world_.fleet.restart(node);
  pool_changed();
  world_.residency.begin_empty(node);
  world_.events.post(world_.events.now() + millis(world_.options.join_ms), EventKind::kSeen,
                     static_cast<int32_t>(node), world_.fleet[node].incarnation);
}

void FaultInjector::join(int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    world_.fleet.join();
    world_.residency.begin_empty(static_cast<route::NodeIndex>(world_.fleet.size() - 1));
  }
  pool_changed();
  world_.gateways.nodes_joined(count);
}

void FaultInjector::drain(route::NodeIndex node, TimePoint until) {
  world_.fleet.drain(node);
  world_.gateways.node_gives_notice(node, until);
  world_.handover.keep_going();
}

void FaultInjector::stop_drained() {
  for (route::NodeIndex node = 0; node < world_.fleet.size(); ++node) {
    if (world_.fleet[node].drains && world_.handover.has_left(node)) kill(node);
  }
}

void FaultInjector::end_stall(route::NodeIndex node) {
  if (world_.fleet.stands_still(node)) return;  // by another fault
  world_.fleet.interrupt(node);
  for (const uint64_t id : world_.fleet.stall_ends(node)) world_.requests.deliver(id);
  world_.fleet.begin_step(node);
}

void FaultInjector::restart_gateway(size_t gateway) {
  const TimePoint now = world_.events.now();
  world_.handover.gateway_restarts(gateway);
  world_.gateways[gateway].restart(now);
  world_.requests.admission().restart(gateway, now);
}

// The bound has as much memory as the nodes that are up.
void FaultInjector::pool_changed() {
  world_.recorder.pool_changed(world_.fleet.up() * world_.options.profile.kv_cache_tokens);
}

}  // namespace troupe::sim
