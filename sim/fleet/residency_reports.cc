#include "sim/fleet/residency_reports.h"

#include <algorithm>
#include <utility>

#include "common/settings/option_checks.h"

namespace troupe::sim {

ResidencyReports::ResidencyReports(const SimulationOptions& options, EventQueue& events,
                                   const SimFleet& fleet)
    : options_(options),
      events_(events),
      fleet_(fleet),
      enabled_(nodes_report(options)),
      residency_(std::make_shared<route::ExactResidency>(options.router.memory.placements_per_node * 4)) {
  for (route::NodeIndex node = 0; node < fleet.size(); ++node) begin_empty(node);
}

void ResidencyReports::begin_empty(route::NodeIndex node) {
  if (node >= streams_.size()) streams_.resize(node + 1);
  if (!enabled_) return;
  route::ResidencyEvent event;
  event.kind = route::ResidencyEvent::Kind::kSnapshot;
  event.epoch = fleet_[node].incarnation;
  residency_->apply(node, event);
}

void ResidencyReports::report(route::NodeIndex node) {
  changes_.clear();
  fleet_[node].engine->take_changes(changes_);
  if (changes_.empty() || !enabled_) return;
  Stream& stream = streams_[node];
  // One event reports growth or shrinking, as on the wire.
  for (const bool grew : {true, false}) {
    Batch batch;
    batch.kind = grew ? route::ResidencyEvent::Kind::kAdmitted : route::ResidencyEvent::Kind::kEvicted;
    for (const Resident& change : changes_) {
      if (change.grew != grew) continue;
      batch.items.push_back({change.name, change.kind, change.tokens});
    }
    if (batch.items.empty()) continue;
    batch.epoch = fleet_[node].incarnation;
    batch.seq = ++stream.seq;
    if (stream.lose_next) {
      stream.lose_next = false;
      continue;
    }
    send(node, std::move(batch), millis(options_.residency_delay_ms));
  }
}

// In order: what is sent later comes no earlier.
void ResidencyReports::send(route::NodeIndex node, Batch batch, Duration delay) {
  Stream& stream = streams_[node];
  stream.due = std::max(stream.due, events_.now() + delay);
  stream.on_the_way.push_back(std::move(batch));
  if (stream.due > events_.now()) {
    for (const route::ResidencyItem& item : stream.on_the_way.back().items)
      residency_->index.prefetch(item.key);
    events_.post(stream.due, EventKind::kResidency, static_cast<int32_t>(node), fleet_[node].incarnation);
  } else {
    deliver_next(node);
  }
}

void ResidencyReports::deliver(route::NodeIndex node, uint64_t incarnation) {
  if (fleet_[node].incarnation == incarnation) deliver_next(node);
}

void ResidencyReports::deliver_next(route::NodeIndex node) {
  Stream& stream = streams_[node];
  const Batch batch = std::move(stream.on_the_way.front());
  stream.on_the_way.pop_front();
  const route::ResidencyEvent event{batch.kind, batch.epoch, batch.seq, batch.items};
  if (residency_->apply(node, event) == route::FeedResult::kGap) send_snapshot(node);
}

void ResidencyReports::send_snapshot(route::NodeIndex node) {
  const FleetNode& from = fleet_[node];
  if (from.engine == nullptr) return;
  std::vector<Resident> all;
  from.engine->snapshot(all);
  Batch batch;
  batch.kind = route::ResidencyEvent::Kind::kSnapshot;
  batch.epoch = from.incarnation;
  batch.seq = streams_[node].seq;
  for (const Resident& r : all) batch.items.push_back({r.name, r.kind, r.tokens});
  send(node, std::move(batch), millis(2 * options_.residency_delay_ms));
}

void ResidencyReports::node_stopped(route::NodeIndex node) {
  Stream& stream = streams_[node];
  stream.on_the_way.clear();
  stream.due = {};
  stream.seq = 0;
}

}  // namespace troupe::sim
