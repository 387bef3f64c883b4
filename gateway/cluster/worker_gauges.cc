#include "gateway/cluster/worker_gauges.h"

#include <utility>

namespace troupe {

using route::NodeIndex;
using route::NodeState;

namespace {

constexpr const char* kUpGauge = "troupe_gateway_worker_up";
constexpr const char* kStateGauge = "troupe_gateway_worker_state";
constexpr std::string_view kFailing = "failing";  // before route::node_state_name()

}  // namespace

void WorkerGauges::give(OfWorker& gauges, const std::string& id) {
  gauges.up = &metrics_.gauge(kUpGauge, "1 while the worker may be sent requests.", {{"worker", id}});
  const auto give = [&](std::string_view state) {
    gauges.states[state] = &metrics_.gauge(
        kStateGauge,
        "1 for the state the worker is in; failing: it passes its probes, and its answers are errors.",
        {{"worker", id}, {"state", std::string(state)}});
  };
  for (const auto state :
       {NodeState::kUnknown, NodeState::kAlive, NodeState::kSuspect, NodeState::kDead, NodeState::kDraining})
    give(route::node_state_name(state));
  give(kFailing);
}

void WorkerGauges::take(NodeIndex node) {
  if (node >= workers_.size()) return;
  OfWorker& gauges = workers_[node];
  if (gauges.up != nullptr) metrics_.remove(kUpGauge, *std::exchange(gauges.up, nullptr));
  for (const auto& [name, gauge] : std::exchange(gauges.states, {})) metrics_.remove(kStateGauge, *gauge);
}

void WorkerGauges::show(std::span<const route::RegisteredNode> nodes, const route::ClusterView& view) {
  workers_.resize(nodes.size());
  for (NodeIndex i = 0; i < nodes.size(); ++i) {
    const route::RegisteredNode& node = nodes[i];
    if (!node.member()) {
      take(i);
      continue;
    }
    OfWorker& gauges = workers_[i];
    if (gauges.up == nullptr) give(gauges, node.id);
    gauges.up->Set(view.routable(i) ? 1 : 0);
    const std::string_view now = node.health.failing() ? kFailing : route::node_state_name(node.state());
    for (const auto& [name, gauge] : gauges.states) gauge->Set(name == now ? 1 : 0);
  }
}

}  // namespace troupe
