// Each member's gauges: whether it may be sent requests, and its state.

#include <utility>

#include "gateway/cluster/fleet.h"

namespace troupe {

using route::NodeIndex;
using route::NodeState;

namespace {

constexpr const char* kUpGauge = "troupe_gateway_worker_up";
constexpr const char* kStateGauge = "troupe_gateway_worker_state";

}  // namespace

void Fleet::give_gauges(Worker& worker, const std::string& id) {
  worker.up = &metrics_.gauge(kUpGauge, "1 while the worker may be sent requests.", {{"worker", id}});
  const auto give = [&](std::string_view state) {
    worker.states[state] = &metrics_.gauge(
        kStateGauge,
        "1 for the state the worker is in; failing: it passes its probes, and its answers are errors.",
        {{"worker", id}, {"state", std::string(state)}});
  };
  for (const auto state :
       {NodeState::kUnknown, NodeState::kAlive, NodeState::kSuspect, NodeState::kDead, NodeState::kDraining})
    give(route::node_state_name(state));
  give(kFailing);
}

void Fleet::take_gauges(Worker& worker) {
  if (worker.up != nullptr) metrics_.remove(kUpGauge, *std::exchange(worker.up, nullptr));
  for (const auto& [name, gauge] : std::exchange(worker.states, {})) metrics_.remove(kStateGauge, *gauge);
}

// Members have gauges, and no one else.
void Fleet::show_gauges() {
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const route::RegisteredNode& node = registered(i);
    if (!node.member()) {
      take_gauges(worker);
      continue;
    }
    if (worker.up == nullptr) give_gauges(worker, node.id);
    worker.up->Set(router_.view().routable(i) ? 1 : 0);
    const std::string_view now = node.health.failing() ? kFailing : route::node_state_name(node.state());
    for (const auto& [name, gauge] : worker.states) gauge->Set(name == now ? 1 : 0);
  }
}

}  // namespace troupe
