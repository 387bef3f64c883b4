#include "gateway/upstream/fleet.h"

#include <algorithm>

#include "common/core/json.h"

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
    : in_flight_max_(options.in_flight_max), router_(parts.router), clock_(parts.clock), log_(parts.log) {
  for (const Endpoint& endpoint : options.workers) {
    Worker worker;
    worker.id = endpoint.authority();
    worker.url = "http://" + worker.id;
    worker.client = std::make_unique<HttpClient>(parts.executor, endpoint, options.client);
    worker.health = route::NodeHealth(options.health);
    worker.up = &parts.metrics.gauge("troupe_gateway_worker_up", "1 while the worker may be sent requests.",
                                     {{"worker", worker.id}});
    workers_.push_back(std::move(worker));
  }
  unprobed_ = workers_.size();
  publish();
}

void Fleet::on_event(NodeIndex node, HealthEvent event) {
  Worker& worker = workers_[node];
  const bool from_probe = event == HealthEvent::kProbeOk || event == HealthEvent::kProbeNotReady ||
                          event == HealthEvent::kProbeFail;
  if (from_probe && !worker.probed) {
    worker.probed = true;
    unprobed_ -= 1;
  }
  const NodeState before = worker.health.state();
  if (!worker.health.on_event(event, clock_.now())) return;
  const NodeState after = worker.health.state();
  log_.write(after == NodeState::kAlive ? LogLevel::kInfo : LogLevel::kWarn, "worker_state",
             {{"worker", worker.id},
              {"from", route::node_state_name(before)},
              {"to", route::node_state_name(after)}});
  if (after == NodeState::kDead) {
    router_.forget_node(node);
    worker.client->close_idle();
    worker.load.reset();
  }
  publish();
  if (worker.health.wants_probe() && on_suspicion) on_suspicion(node);
}

void Fleet::set_models(NodeIndex node, std::vector<ModelCard> models) {
  Worker& worker = workers_[node];
  const auto same_id = [](const ModelCard& a, const ModelCard& b) { return a.id == b.id; };
  const bool same =
      std::equal(models.begin(), models.end(), worker.models.begin(), worker.models.end(), same_id);
  worker.models = std::move(models);
  if (!same) publish();
}

void Fleet::set_load(NodeIndex node, LoadReport report) {
  Worker& worker = workers_[node];
  if (worker.load && worker.load->epoch != report.epoch) {
    log_.info("worker_cache_empty", {{"worker", worker.id}, {"epoch", report.epoch}});
    router_.forget_node(node);
  }
  router_.report(node, node_report(report), clock_.now());
  worker.load = std::move(report);
}

void Fleet::publish() {
  std::vector<route::NodeView> nodes;
  nodes.reserve(workers_.size());
  for (Worker& worker : workers_) {
    route::NodeView node;
    node.id = worker.id;
    node.url = worker.url;
    node.state = worker.health.state();
    node.in_flight_max = in_flight_max_;
    for (const ModelCard& card : worker.models) node.models.push_back(card.id);
    nodes.push_back(std::move(node));
  }
  router_.adopt(std::make_shared<route::ClusterView>(++view_epoch_, std::move(nodes)));
  for (NodeIndex i = 0; i < workers_.size(); ++i) workers_[i].up->Set(router_.view().routable(i) ? 1 : 0);
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

std::string Fleet::workers_json() const {
  bj::array list;
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    const route::NodeLoad& load = router_.loads().at(i);
    bj::object item;
    item["id"] = worker.id;
    item["url"] = worker.url;
    item["state"] = bj::string(route::node_state_name(worker.health.state()));
    item["state_for_s"] = nullptr;
    if (worker.probed)
      item["state_for_s"] =
          std::chrono::floor<std::chrono::seconds>(clock_.now() - worker.health.since()).count();
    item["failures_in_a_row"] = worker.health.failures();
    bj::array models;
    for (const ModelCard& card : worker.models) models.emplace_back(card.id);
    item["models"] = std::move(models);
    item["in_flight"] = load.in_flight;
    item["pending_tokens"] = load.pending_tokens;
    item["others_requests"] = load.others_requests;
    item["others_pending_tokens"] = load.others_pending_tokens;
    item["load"] = nullptr;
    if (worker.load) {
      if (auto report = parse_json(load_report_json(*worker.load)); report.ok())
        item["load"] = *std::move(report);
    }
    list.emplace_back(std::move(item));
  }
  bj::object out;
  out["view_epoch"] = router_.view().epoch();
  out["workers"] = std::move(list);
  return to_json(out);
}

}  // namespace troupe
