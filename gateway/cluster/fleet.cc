#include "gateway/cluster/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/settings/schema.h"

namespace troupe {

using route::HealthEvent;
using route::NodeIndex;
using route::NodeState;

namespace {

route::NodeReport node_report(const LoadReport& report) {
  route::NodeReport out;
  out.running = report.running;
  out.queued = report.waiting;
  out.pending_prefill_tokens = report.pending_prefill_tokens;
  out.work_tokens_total = report.work_tokens_total;
  out.max_num_seqs = report.max_num_seqs;
  out.block_tokens = report.block_size > 0 ? report.block_size : route::kBlockTokens;
  out.kv_tokens_total = report.kv_blocks_total * out.block_tokens;
  out.kv_tokens_free = report.kv_blocks_free * out.block_tokens;
  return out;
}

}  // namespace

Fleet::Fleet(const FleetOptions& options, const Parts& parts)
    : options_(options),
      executor_(parts.executor),
      metrics_(parts.metrics),
      router_(parts.router),
      clock_(parts.clock),
      log_(parts.log),
      set_loads_(options.set_loads_half_life, options.sets_max) {
  for (const Endpoint& endpoint : options.workers) {
    workers_.push_back(make_worker(endpoint));
    workers_.back().awaited = true;
  }
  unprobed_ = workers_.size();
  publish();
}

void Fleet::drain(NodeIndex node) {
  if (std::exchange(workers_[node].drained, true)) return;
  log_.info("worker_drained", {{"worker", workers_[node].id}});
  begin_leaving(node, TimePoint::max());
}

void Fleet::retire(NodeIndex node) {
  workers_[node].retired = true;
  drain(node);
  if (!workers_[node].leaving) remove(node);
}

void Fleet::change(const FleetOptions& options) {
  const std::vector<Endpoint> before = std::exchange(options_.workers, options.workers);
  const auto missing = [](const std::vector<Endpoint>& list, const Endpoint& endpoint) {
    return std::find(list.begin(), list.end(), endpoint) == list.end();
  };
  options_.health = options.health;
  options_.in_flight_max = options.in_flight_max;
  options_.ramp = options.ramp;
  for (Worker& worker : workers_) worker.health.change(options.health);
  for (const Endpoint& endpoint : options.workers) {
    if (!missing(before, endpoint)) continue;
    if (const auto added = add(endpoint); !added.ok())
      log_.error("worker_not_added", {{"why", to_std(added.status().message())}});
  }
  for (const Endpoint& endpoint : before) {
    const auto node = find(endpoint.authority());
    const auto same_place = [&](const Endpoint& other) { return other.authority() == endpoint.authority(); };
    if (std::none_of(options.workers.begin(), options.workers.end(), same_place) && node) retire(*node);
  }
  publish();
}

void Fleet::saw_notice(NodeIndex node, Duration takes_requests_for) {
  Worker& worker = workers_[node];
  if (worker.removed) return;
  if (on_leaving == nullptr || !healthy(worker)) return on_event(node, HealthEvent::kProbeNotReady);
  worker.probed = true;
  await_no_more(worker);
  if (std::exchange(worker.notified, true)) return;
  log_.info("worker_leaves", {{"worker", worker.id}});
  begin_leaving(node, clock_.now() + takes_requests_for);
}

// The view first: who is to have its sets is planned with it.
void Fleet::begin_leaving(NodeIndex node, TimePoint until) {
  Worker& worker = workers_[node];
  worker.leaving = on_leaving != nullptr && router_.view().routable(node);
  const bool begins = worker.leaving && !router_.handover().leaving(node);
  publish();
  if (begins) on_leaving(node, until);
}

void Fleet::left(NodeIndex node) {
  Worker& worker = workers_[node];
  worker.leaving = false;
  log_.info("sets_left", {{"worker", worker.id}});
  if (worker.retired) {
    remove(node);
  } else {
    publish();
  }
}

void Fleet::come_back(NodeIndex node) {
  workers_[node].leaving = false;
  router_.handover().come_back(node);
}

// What it lacks is computed there; and it is not flooded with what nobody holds.
void Fleet::begins_empty(NodeIndex node) {
  Worker& worker = workers_[node];
  if (on_begins_empty == nullptr) return;
  if (router_.known().sets.size() > 0 && options_.ramp > Duration::zero()) {
    worker.joined_at = clock_.now();
    worker.weight = route::ramp_weight(Duration::zero(), options_.ramp);
    publish();
  }
  on_begins_empty(node);
}

bool Fleet::ramp() {
  bool changed = false, ramps = false;
  for (Worker& worker : workers_) {
    if (!worker.joined_at) continue;
    const Duration since = clock_.now() - *worker.joined_at;
    const double weight = route::ramp_weight(since, options_.ramp);
    if (since >= options_.ramp) worker.joined_at.reset();
    changed = changed || weight != worker.weight;
    ramps = ramps || worker.joined_at;
    worker.weight = weight;
  }
  if (changed) publish();
  return ramps;
}

void Fleet::await_members() {
  if (!std::exchange(awaits_members_, true)) unprobed_ += 1;
}

void Fleet::told_members() {
  if (std::exchange(awaits_members_, false)) unprobed_ -= 1;
}

void Fleet::await_no_more(Worker& worker) {
  if (std::exchange(worker.awaited, false)) unprobed_ -= 1;
}

NodeState Fleet::state(NodeIndex node) const {
  const Worker& worker = workers_[node];
  if (worker.removed) return NodeState::kDead;
  const bool drains = worker.drained || worker.notified;
  return healthy(worker) && drains ? NodeState::kDraining : worker.health.state();
}

bool Fleet::healthy(const Worker& worker) const {
  const NodeState state = worker.health.state();
  return state == NodeState::kAlive || state == NodeState::kSuspect;
}

void Fleet::on_event(NodeIndex node, HealthEvent event, std::string_view why) {
  Worker& worker = workers_[node];
  const bool from_probe = event == HealthEvent::kProbeOk || event == HealthEvent::kProbeNotReady ||
                          event == HealthEvent::kProbeFail;
  if (worker.removed) return;  // an answer that was under way
  if (from_probe) {
    worker.probed = true;
    await_no_more(worker);
  }
  const NodeState before = worker.health.state();
  const bool was_routable = router_.view().routable(node);
  // Another program in its place.
  const bool returns = event == HealthEvent::kProbeOk && std::exchange(worker.notified, false);
  if (returns) come_back(node);
  const bool changed = worker.health.on_event(event, clock_.now());
  if (!changed && !returns) return;
  if (changed) tell_state(node, before, why);
  if (worker.health.state() == NodeState::kDead) {
    router_.forget_node(node);
    worker.client->close_idle();
    worker.load.reset();
    worker.heartbeats = false;  // what comes back may be another program
    worker.leaving = false;
  }
  if (worker.retired && worker.health.state() == NodeState::kDead) return remove(node);
  publish();
  if ((!was_routable || returns) && router_.view().routable(node)) begins_empty(node);
  if (worker.health.wants_probe() && on_suspicion) on_suspicion(node);
}

void Fleet::tell_state(NodeIndex node, NodeState before, std::string_view why) const {
  const route::NodeHealth& health = workers_[node].health;
  log_.write(health.state() == NodeState::kAlive ? LogLevel::kInfo : LogLevel::kWarn, "worker_state",
             {{"worker", workers_[node].id},
              {"from", route::node_state_name(before)},
              {"to", route::node_state_name(health.state())},
              {"failing", health.failing()},
              {"why", why}});
}

void Fleet::set_models(NodeIndex node, std::vector<ModelCard> models) {
  Worker& worker = workers_[node];
  if (worker.removed) return;
  const auto same_id = [](const ModelCard& a, const ModelCard& b) { return a.id == b.id; };
  const bool same =
      std::equal(models.begin(), models.end(), worker.models.begin(), worker.models.end(), same_id);
  worker.models = std::move(models);
  if (!same) publish();
}

void Fleet::set_load(NodeIndex node, LoadReport report) {
  Worker& worker = workers_[node];
  if (worker.removed) return;
  saw_epoch(node, report.epoch);
  router_.report(node, node_report(report), clock_.now());
  // A worker's sets are its only model's: of several it is not told whose a set is.
  if (worker.models.size() == 1) {
    std::vector<route::SetLoadMerger::Counter> counters;
    counters.reserve(report.sets.size());
    for (const LoadReport::SetWork& work : report.sets)
      counters.push_back({work.set, work.work_tokens_total, work.prefix_tokens});
    set_loads_.report(node, hash_bytes(report.epoch).lo, worker.models.front().id, counters);
  }
  worker.load = std::move(report);
}

void Fleet::saw_epoch(NodeIndex node, std::string_view epoch) {
  Worker& worker = workers_[node];
  if (worker.epoch == epoch) return;
  if (!worker.epoch.empty()) {
    log_.info("worker_cache_empty", {{"worker", worker.id}, {"epoch", epoch}});
    router_.forget_node(node);
    worker.epoch = epoch;
    if (on_changed) on_changed();
    if (router_.view().routable(node) && !worker.leaving) begins_empty(node);
    return;
  }
  worker.epoch = epoch;
}

bool Fleet::tells_set_loads() const {
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    if (router_.view().routable(i) && !workers_[i].load) return false;
  }
  return router_.view().routable_count() > 0;
}

void Fleet::publish() {
  std::vector<route::NodeView> nodes;
  nodes.reserve(workers_.size());
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    route::NodeView node;
    node.id = worker.id;
    node.url = worker.url;
    node.state = state(i);
    node.leaving = worker.leaving && healthy(worker);
    if (node.leaving) node.state = worker.health.state();
    node.failing = worker.health.failing();
    node.weight = worker.weight;
    node.in_flight_max = options_.in_flight_max;
    for (const ModelCard& card : worker.models) node.models.push_back(card.id);
    nodes.push_back(std::move(node));
  }
  router_.adopt(std::make_shared<route::ClusterView>(++view_epoch_, std::move(nodes)));
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (worker.up == nullptr) continue;
    worker.up->Set(router_.view().routable(i) ? 1 : 0);
    const std::string_view now = worker.health.failing() ? kFailing : route::node_state_name(state(i));
    for (const auto& [name, gauge] : worker.states) gauge->Set(name == now ? 1 : 0);
  }
  if (on_changed) on_changed();
}

std::vector<ModelCard> Fleet::models() const {
  std::vector<ModelCard> cards;
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    if (!router_.view().routable(i)) continue;
    for (const ModelCard& card : workers_[i].models) {
      const auto same = [&](const ModelCard& c) { return c.id == card.id; };
      if (std::none_of(cards.begin(), cards.end(), same)) cards.push_back(card);
    }
  }
  return cards;
}

void describe(SettingsSchema& schema, FleetOptions& options) {
  schema.add("probe.dead_after", &options.health.dead_after, "failures in a row that make a worker dead")
      .range(1, 1000)
      .live();
  schema.add("probe.alive_after", &options.health.alive_after, "good probes in a row that bring it back")
      .range(1, 1000)
      .live();
  schema
      .add("handover.ramp_secs", &options.ramp,
           "a worker that joins rises from a tenth of its share to all of it")
      .range(0, 3600)
      .unit("seconds")
      .live();
  schema
      .add("limits.worker_requests", &options.in_flight_max,
           "requests at once a worker is sent before others are preferred; 0: no bound")
      .range(0, 1e6)
      .live();
  schema.add("upstream.connect_timeout_ms", &options.client.connect_timeout, "to connect to a worker")
      .range(1, 600'000)
      .unit("ms");
  schema.add("upstream.idle_connections", &options.client.idle_connections_max, "kept open to each worker")
      .range(0, 65'536);
  schema.add("upstream.idle_timeout_ms", &options.client.idle_timeout, "and for how long unused")
      .range(1, 3.6e6)
      .unit("ms");
}

}  // namespace troupe
