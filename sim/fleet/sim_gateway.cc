#include "sim/fleet/sim_gateway.h"

#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gateway/route/node_actions.h"

namespace troupe::sim {

namespace {

using route::HealthEvent;
using route::NodeAction;
using route::NodeIndex;
using route::NodeState;

// The nodes serve their model from the first moment on.
route::NewNode new_node(size_t number) {
  return {"n" + std::to_string(number), "", {kModel}};
}

route::NodeRegistry registry_of(size_t nodes, Duration ramp) {
  route::NodeRegistryOptions options;
  options.nodes_max = std::numeric_limits<int32_t>::max();  // the simulation bounds its fleet itself
  options.ramp = ramp;
  std::vector<route::NewNode> all;
  all.reserve(nodes);
  for (size_t i = 0; i < nodes; ++i) all.push_back(new_node(i));
  return {options, std::move(all)};
}

std::vector<NodeIndex> slots(size_t first, size_t end) {
  std::vector<NodeIndex> all(end - first);
  std::iota(all.begin(), all.end(), static_cast<NodeIndex>(first));
  return all;
}

}  // namespace

// The first look at the nodes finds nothing that a router without sets could move or compute: its view is all
// that comes of it.
SimGateway::SimGateway(const Options& options, SimProber& prober, TimePoint now)
    : options_(options),
      prober_(prober),
      retry_budget_(options.retry),
      registry_(registry_of(static_cast<size_t>(options.nodes), options.ramp)) {
  begin_incarnation(now);
  registry_.on_event(slots(0, registry_.nodes().size()), HealthEvent::kProbeOk, moment(now));
  router_->update_cluster(registry_.view());
}

void SimGateway::begin_incarnation(TimePoint now) {
  const uint64_t seed = options_.seed + 0x9e3779b97f4a7c15u * incarnation_;
  options_.router.name = chain_hash(Hash128{0, seed}, std::string_view("gateway"));
  router_ = std::make_unique<route::Router>(options_.router, seed, options_.residency);
  gossip_ = std::make_unique<route::GossipRounds>(options_.gossip, *router_);
  for (uint32_t other = 0; other < options_.gateways; ++other) {
    if (other != options_.number) gossip_->add(other, now);
  }
}

route::NodeRegistry::Moment SimGateway::moment(TimePoint now) const {
  return {now, true, router_->known().sets.size() > 0};
}

// A NodeRegistry's driver. A node's only connection is the stream of what it holds, which all gateways read
// together; every node is probed as long as it is one.
void SimGateway::perform(const route::NodeActions& actions, TimePoint now) {
  for (const NodeAction& action : actions) {
    if (route::perform(*router_, action)) continue;
    switch (action.kind) {
      case NodeAction::Kind::kDisconnect:
        options_.residency->forget_node(action.node);
        break;
      case NodeAction::Kind::kMoveSets:
        if (on_leaving) on_leaving(action.node, action.until);
        break;
      case NodeAction::Kind::kFillCache:
        if (on_begins_empty) on_begins_empty(action.node);
        break;
      case NodeAction::Kind::kProbe:
        probe(action.node, now);
        break;
      default:
        break;
    }
  }
}

void SimGateway::add_nodes(int32_t count, TimePoint now) {
  const size_t first = registry_.nodes().size();
  for (int32_t i = 0; i < count; ++i)
    perform(registry_.add(new_node(registry_.nodes().size())).value().actions, now);
  perform(registry_.on_event(slots(first, registry_.nodes().size()), HealthEvent::kProbeOk, moment(now)),
          now);
}

bool SimGateway::ramp(TimePoint now) {
  perform(registry_.ramp(now), now);
  return registry_.ramps();
}

void SimGateway::saw_notice(NodeIndex node, TimePoint until, TimePoint now) {
  perform(registry_.saw_notice(node, until - now, moment(now)), now);
}

void SimGateway::saw_incarnation(NodeIndex node, uint64_t incarnation, TimePoint now) {
  perform(registry_.saw_cache_epoch(node, std::to_string(incarnation), moment(now)), now);
}

void SimGateway::on_event(NodeIndex node, HealthEvent event, TimePoint now) {
  perform(registry_.on_event(std::span(&node, 1), event, moment(now)), now);
}

route::NodeStatus SimGateway::node_status(NodeIndex node) const {
  const route::RegisteredNode& known = registry_.nodes()[node];
  return {.is_troupe_worker = true,
          .heartbeats = true,
          .suspect = known.state() == NodeState::kSuspect,
          .dead = known.known_dead()};
}

// It looks at each node anew, and each answers as it answered last.
void SimGateway::restart(TimePoint now) {
  incarnation_ += 1;
  begin_incarnation(now);
  const route::NodeRegistry before =
      std::exchange(registry_, registry_of(registry_.nodes().size(), options_.ramp));
  std::vector<NodeIndex> ready, draining, dead;
  for (const NodeIndex node : slots(0, before.nodes().size())) {
    const route::RegisteredNode& known = before.nodes()[node];
    const bool drains = known.leaving() || known.state() == NodeState::kDraining;
    (drains ? draining : known.known_dead() ? dead : ready).push_back(node);
  }
  registry_.on_event(ready, HealthEvent::kProbeOk, moment(now));
  registry_.on_event(draining, HealthEvent::kProbeNotReady, moment(now));
  registry_.on_event(dead, HealthEvent::kProbeFail, moment(now));
  router_->update_cluster(registry_.view());
}

}  // namespace troupe::sim
