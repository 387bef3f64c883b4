#include "sim/fleet/sim_fleet.h"

#include <algorithm>
#include <utility>

#include "common/settings/option_checks.h"

namespace troupe::sim {

SimFleet::SimFleet(const SimulationOptions& options, EventQueue& events)
    : options_(options), events_(events) {
  for (int32_t i = 0; i < options.nodes; ++i) join();
}

std::unique_ptr<SimNode> SimFleet::new_engine() const {
  return std::make_unique<SimNode>(options_.profile, options_.scheduler);
}

int64_t SimFleet::up() const {
  return std::count_if(nodes_.begin(), nodes_.end(),
                       [](const FleetNode& node) { return node.engine != nullptr; });
}

void SimFleet::begin_step(route::NodeIndex index) {
  if (stands_still(index)) return;
  if (const auto ends = nodes_[index].engine->begin_step(events_.now())) expect_step_end(index, *ends);
}

void SimFleet::expect_step_end(route::NodeIndex index, TimePoint at) {
  FleetNode& node = nodes_[index];
  node.step_end = at;
  events_.post(at, EventKind::kStepEnd, static_cast<int32_t>(index), node.incarnation);
}

void SimFleet::interrupt(route::NodeIndex index) {
  if (const auto ends = nodes_[index].engine->interrupt(events_.now())) expect_step_end(index, *ends);
}

bool SimFleet::step_ends(route::NodeIndex index, uint64_t incarnation) {
  const FleetNode& node = nodes_[index];
  if (node.incarnation != incarnation || node.step_end != events_.now()) return false;
  if (!stands_still(index)) return true;
  expect_step_end(index, node.stalled_until);
  return false;
}

const std::vector<SimNode::Token>& SimFleet::end_step(route::NodeIndex index) {
  nodes_[index].step_end = {};
  return nodes_[index].engine->end_step(events_.now());
}

void SimFleet::drop_given_up(route::NodeIndex index) {
  FleetNode& node = nodes_[index];
  if (node.given_up.empty()) return;
  for (const RequestId id : std::exchange(node.given_up, {})) node.engine->cancel(id);
}

void SimFleet::join() {
  nodes_.emplace_back().engine = new_engine();
}

void SimFleet::stop(route::NodeIndex index) {
  FleetNode& node = nodes_[index];
  node.engine = nullptr;
  node.drains = false;
  node.stalled_until = {};
  node.undelivered.clear();
  node.given_up.clear();
  node.incarnation += 1;
}

void SimFleet::restart(route::NodeIndex index) {
  nodes_[index].engine = new_engine();
  nodes_[index].answers_from = events_.now() + millis(options_.join_ms);
}

void SimFleet::drain(route::NodeIndex index) {
  nodes_[index].engine->catch_up(events_.now());
  nodes_[index].drains = true;
}

void SimFleet::slow_down(route::NodeIndex index, double factor) {
  nodes_[index].engine->set_slowdown(factor);
}

bool SimFleet::stall(route::NodeIndex index, TimePoint until) {
  FleetNode& node = nodes_[index];
  const bool hangs = stands_still(index);
  node.stalled_until = std::max(node.stalled_until, until);
  if (hangs || node.engine == nullptr) return false;
  node.stalls += 1;
  interrupt(index);
  return true;
}

std::vector<uint64_t> SimFleet::stall_ends(route::NodeIndex index) {
  if (!nodes_[index].engine->stepping()) drop_given_up(index);
  return std::exchange(nodes_[index].undelivered, {});
}

std::vector<Recorder::NodeStand> SimFleet::stands() const {
  std::vector<Recorder::NodeStand> stands;
  stands.reserve(nodes_.size());
  for (const FleetNode& node : nodes_) {
    Recorder::NodeStand stand;
    stand.alive = node.engine != nullptr;
    if (stand.alive) {
      node.engine->catch_up(events_.now());
      const SchedulerStats& stats = node.engine->stats();
      stand.work_tokens = node.engine->work_tokens();
      stand.running = stats.running;
      stand.waiting = stats.waiting;
      stand.preemptions = stats.preemptions_total;
      stand.kv_used =
          static_cast<float>(stats.blocks_used) / static_cast<float>(std::max(stats.blocks_total, 1));
    }
    stands.push_back(stand);
  }
  return stands;
}

}  // namespace troupe::sim
