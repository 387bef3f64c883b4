#include "sim/fleet/sim_prober.h"

#include <algorithm>
#include <utility>

namespace troupe::sim {

SimProber::SimProber(const Fleet& fleet, EventQueue& events, Surroundings surroundings)
    : fleet_(fleet), events_(events), surroundings_(std::move(surroundings)), schedules_(fleet.gateways) {}

void SimProber::begin(size_t first, size_t end) {
  constexpr size_t kPhases = 16;
  for (size_t gateway = 0; gateway < fleet_.gateways; ++gateway) {
    schedules_[gateway].resize(std::max(schedules_[gateway].size(), end));
    for (size_t node = first; node < end; ++node) {
      // As if one had been sent before: the next is due an interval after it.
      const auto phase = static_cast<int64_t>((11 * node + 5 * gateway) % kPhases);
      route::ProbeSchedule& probes = schedules_[gateway][node];
      probes.begin(events_.now() - fleet_.probe.interval * phase / kPhases);
      probes.end();
      post(probes.due(fleet_.probe), gateway, static_cast<route::NodeIndex>(node), Phase::kDue);
    }
  }
}

void SimProber::ask(size_t gateway, route::NodeIndex node) {
  route::ProbeSchedule& probes = schedule(gateway, node);
  probes.ask();
  if (!probes.under_way())
    post(std::max(events_.now(), probes.due(fleet_.probe)), gateway, node, Phase::kDue);
}

void SimProber::post(TimePoint at, size_t gateway, route::NodeIndex node, Phase phase) {
  const uint64_t tag = uint64_t{gateway} << kPhaseBits | static_cast<uint64_t>(phase);
  events_.post(at, EventKind::kProbe, static_cast<int32_t>(node), tag);
}

void SimProber::tick(route::NodeIndex node, uint64_t tag) {
  const auto gateway = static_cast<size_t>(tag >> kPhaseBits);
  const auto phase = static_cast<Phase>(tag & ((uint64_t{1} << kPhaseBits) - 1));
  if (phase != Phase::kDue) return ended(gateway, node, phase == Phase::kAnswered);
  // One that was asked for has taken the place of the one that was due now.
  const route::ProbeSchedule& probes = schedule(gateway, node);
  if (!probes.under_way() && probes.due(fleet_.probe) <= events_.now()) send(gateway, node);
}

void SimProber::send(size_t gateway, route::NodeIndex node) {
  const TimePoint now = events_.now();
  schedule(gateway, node).begin(now);
  const Surroundings::Stand stand = surroundings_.stand(node);
  const TimePoint answers_at = std::max(now, stand.hangs_until) + fleet_.round_trip;
  const bool in_time = !stand.up || answers_at <= now + fleet_.probe.timeout;
  const TimePoint at = !stand.up ? now + fleet_.round_trip
                       : in_time ? answers_at
                                 : now + fleet_.probe.timeout;
  const bool answered = stand.up && in_time;
  if (at > now) return post(at, gateway, node, answered ? Phase::kAnswered : Phase::kFailed);
  ended(gateway, node, answered);
}

void SimProber::ended(size_t gateway, route::NodeIndex node, bool answered) {
  schedule(gateway, node).end();
  surroundings_.saw(gateway, node, answered);
  post(schedule(gateway, node).due(fleet_.probe), gateway, node, Phase::kDue);
}

}  // namespace troupe::sim
