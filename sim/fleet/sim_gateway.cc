#include "sim/fleet/sim_gateway.h"

#include <string>

namespace troupe::sim {

SimGateway::SimGateway(const Options& options, TimePoint now)
    : options_(options), retry_budget_(options.retry) {
  begin_life();
  add_nodes(options_.nodes, now);
}

void SimGateway::begin_life() {
  const uint64_t seed = options_.seed + 0x9e3779b97f4a7c15u * lives_;
  options_.router.name = chain_hash(Hash128{0, seed}, std::string_view("gateway"));
  router_ = std::make_unique<route::Router>(options_.router, seed, options_.residency);
  samples_taken_ = 0;
}

void SimGateway::add_nodes(int32_t count, TimePoint now) {
  for (int32_t i = 0; i < count; ++i) health_.emplace_back().on_event(route::HealthEvent::kProbeOk, now);
  weights_.resize(health_.size(), 1);
  leaving_.resize(health_.size(), false);
  publish();
}

void SimGateway::begins_empty(route::NodeIndex node, TimePoint now) {
  leaving_[node] = false;
  if (options_.ramp == Duration::zero() || router_->known().sets.size() == 0) return;
  ramps_[node] = now;
  weights_[node] = route::ramp_weight(Duration::zero(), options_.ramp);
  publish();
}

bool SimGateway::ramp(TimePoint now) {
  bool changed = false;
  for (auto& [node, begun] : ramps_) {
    const double weight = route::ramp_weight(now - begun, options_.ramp);
    changed = changed || weight != weights_[node];
    weights_[node] = weight;
  }
  std::erase_if(ramps_, [&](const auto& entry) { return now - entry.second >= options_.ramp; });
  if (changed) publish();
  return !ramps_.empty();
}

void SimGateway::begin_leaving(route::NodeIndex node) {
  leaving_[node] = true;
  publish();
}

void SimGateway::left(route::NodeIndex node, TimePoint now) {
  leaving_[node] = false;
  health_[node].on_event(route::HealthEvent::kProbeNotReady, now);
  publish();
}

void SimGateway::on_event(route::NodeIndex node, route::HealthEvent event, TimePoint now) {
  if (!health_[node].on_event(event, now)) return;
  if (health_[node].state() == route::NodeState::kDead) {
    leaving_[node] = false;
    router_->forget_node(node);
    options_.residency->forget_node(node);
  }
  publish();
  if (health_[node].wants_probe()) probe(node, now);
}

route::NodeStanding SimGateway::standing(route::NodeIndex node) const {
  return {.ours = true,
          .heartbeats = true,
          .suspect = health_[node].state() == route::NodeState::kSuspect,
          .dead = health_[node].state() == route::NodeState::kDead};
}

std::string SimGateway::take_sample() {
  if (samples_taken_ == router_->samples()) return {};
  samples_taken_ = router_->samples();
  return router_->sample_message();
}

void SimGateway::restart(TimePoint now) {
  lives_ += 1;
  begin_life();
  for (size_t i = 0; i < health_.size(); ++i) {
    const route::NodeState state = health_[i].state();
    const bool drains = leaving_[i] || state == route::NodeState::kDraining;
    leaving_[i] = false;
    health_[i] = route::NodeHealth();
    health_[i].on_event(drains                             ? route::HealthEvent::kProbeNotReady
                        : state == route::NodeState::kDead ? route::HealthEvent::kProbeFail
                                                           : route::HealthEvent::kProbeOk,
                        now);
  }
  publish();
}

void SimGateway::publish() {
  std::vector<route::NodeView> nodes(health_.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].id = "n" + std::to_string(i);
    nodes[i].state = health_[i].state();
    nodes[i].models = {kModel};
    nodes[i].weight = weights_[i];
    nodes[i].leaving = leaving_[i];
  }
  router_->adopt(std::make_shared<route::ClusterView>(++view_epoch_, std::move(nodes)));
}

}  // namespace troupe::sim
