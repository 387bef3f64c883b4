#include "gateway/cluster/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/settings/schema.h"
#include "gateway/route/node_actions.h"

namespace troupe {

using route::HealthEvent;
using route::NodeAction;
using route::NodeIndex;
using route::NodeState;

namespace {

const std::vector<double> kConnectBuckets{1e-4,   2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2,
                                          2.5e-2, 5e-2,   0.1,  0.25, 0.5,    1,    2.5};

route::NodeReport node_report(const LoadReport& report, const CacheReport& cache) {
  route::NodeReport out;
  out.running = report.running;
  out.queued = report.waiting;
  out.pending_prefill_tokens = report.pending_prefill_tokens;
  out.work_tokens_total = report.work_tokens_total;
  out.max_num_seqs = report.max_num_seqs;
  out.block_tokens = report.block_size > 0 ? report.block_size : route::kBlockTokens;
  out.kv_tokens_total = report.kv_blocks_total * out.block_tokens;
  out.kv_tokens_free = report.kv_blocks_free * out.block_tokens;
  if (cache.kv_blocks_cached >= 0) out.kv_tokens_cached = cache.kv_blocks_cached * out.block_tokens;
  return out;
}

route::NewNode new_node(const Upstream& upstream) {
  route::NewNode node{upstream.id(), upstream.url()};
  node.capacity = upstream.weight;
  return node;
}

route::NodeService service_of(const std::vector<ModelCard>& models, bool is_troupe_worker) {
  route::NodeService service;
  for (const ModelCard& card : models) {
    service.models.push_back(card.id);
    service.contexts.push_back(card.max_model_len);
  }
  service.is_troupe_worker = is_troupe_worker;
  return service;
}

std::vector<route::NewNode> new_nodes(const std::vector<Upstream>& upstreams) {
  std::vector<route::NewNode> nodes;
  nodes.reserve(upstreams.size());
  for (const Upstream& upstream : upstreams) nodes.push_back(new_node(upstream));
  return nodes;
}

const Upstream* find_upstream(const std::vector<Upstream>& list, const std::string& id) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Upstream& upstream) { return upstream.id() == id; });
  return found == list.end() ? nullptr : &*found;
}

}  // namespace

Fleet::Fleet(const FleetOptions& options, const Parts& parts)
    : options_(options),
      executor_(parts.executor),
      metrics_(parts.metrics),
      router_(parts.router),
      clock_(parts.clock),
      log_(parts.log),
      registry_(options, new_nodes(options.workers)),
      set_loads_(options.set_loads_half_life, options.sets_max),
      gauges_(parts.metrics) {
  for (const Upstream& upstream : options.workers) {
    Worker& worker = workers_.emplace_back();
    worker.upstream = upstream;
    worker.client = make_client(upstream);
  }
  router_.update_cluster(registry_.view());
  gauges_.show(registry_.nodes(), router_.view());
}

route::NodeRegistry::Moment Fleet::moment() const {
  return {clock_.now(), on_leaving != nullptr, router_.known().sets.size() > 0};
}

// A NodeRegistry's driver.
void Fleet::perform(const route::NodeActions& actions, std::string_view why) {
  bool changed = false;
  for (const NodeAction& action : actions) {
    if (route::perform(router_, action)) {
      if (action.kind == NodeAction::Kind::kAdopt) gauges_.show(registry_.nodes(), router_.view());
      changed = changed || action.kind != NodeAction::Kind::kStay;
      continue;
    }
    switch (action.kind) {
      case NodeAction::Kind::kDisconnect:
        workers_[action.node].client->close_idle();
        workers_[action.node].load.reset();
        workers_[action.node].heartbeats = false;
        break;
      case NodeAction::Kind::kMoveSets:
        if (on_leaving) on_leaving(action.node, action.until);
        break;
      case NodeAction::Kind::kFillCache:
        if (on_begins_empty) on_begins_empty(action.node);
        break;
      case NodeAction::Kind::kProbe:
        if (on_suspicion) on_suspicion(action.node);
        break;
      case NodeAction::Kind::kFollow:
        if (on_joined) on_joined(action.node);
        break;
      case NodeAction::Kind::kRemoved:
        workers_[action.node].models.clear();
        workers_[action.node].why.clear();
        log_action(action, why);
        break;
      default:  // changes of state
        log_action(action, why);
    }
  }
  if (changed && on_changed) on_changed();
}

void Fleet::log_action(const NodeAction& action, std::string_view why) const {
  const route::RegisteredNode& node = registered(action.node);
  switch (action.kind) {
    case NodeAction::Kind::kDrains:
      return log_.info("worker_drained", {{"worker", node.id}});
    case NodeAction::Kind::kGaveNotice:
      return log_.info("worker_leaves", {{"worker", node.id}});
    case NodeAction::Kind::kRemoved:
      return log_.info("worker_removed", {{"worker", node.id}});
    default:
      return log_.write(node.health.state() == NodeState::kAlive ? LogLevel::kInfo : LogLevel::kWarn,
                        "worker_state",
                        {{"worker", node.id},
                         {"from", route::node_state_name(action.before)},
                         {"to", route::node_state_name(node.health.state())},
                         {"failing", node.health.failing()},
                         {"why", why}});
  }
}

// The histograms are the registry's, which outlives every connection.
std::unique_ptr<HttpClient> Fleet::make_client(const Upstream& upstream) {
  const auto took = [this](const char* result) {
    return &metrics_.histogram("troupe_gateway_connect_seconds",
                               "New connections to workers, of probes too: name lookup, TCP and TLS "
                               "handshakes, by whether they came to be.",
                               kConnectBuckets, {{"result", result}});
  };
  HttpClientOptions client = options_.client;
  client.path = upstream.path;
  client.authorization = upstream.authorization;
  client.authorization_header = upstream.key_header;
  client.refuses_link_local = upstream.refuses_link_local;
  if (upstream.tls != nullptr) client.tls = upstream.tls;
  // (Host header, SNI and certificate check go by the name.)
  if (const std::string& at = upstream.address; !at.empty())
    client.lookup = [at](const std::string&, uint16_t port) { return std::vector{std::pair(at, port)}; };
  client.on_connect = [connected = took("connected"), failed = took("failed")](Duration duration, bool ok) {
    (ok ? connected : failed)->Observe(std::chrono::duration<double>(duration).count());
  };
  return std::make_unique<HttpClient>(executor_, upstream.endpoint, std::move(client));
}

// A worker that is new in its slot, or reached otherwise from now on.
// Returns whether it is of another kind from now on, and what it told as the last kind is forgotten.
bool Fleet::connect(const route::NodeRegistry::Added& added, Upstream upstream) {
  if (added.replaces) {
    gauges_.take(added.node);
    workers_[added.node] = {};
    set_loads_.forget(added.node);
    if (on_replaced) on_replaced(added.node);
  }
  if (added.node == workers_.size()) workers_.emplace_back();
  Worker& worker = workers_[added.node];
  const bool another_kind = worker.client != nullptr && worker.upstream.kind != upstream.kind;
  worker.client = make_client(upstream);
  worker.upstream = std::move(upstream);
  if (another_kind) worker.load.reset();
  worker.heartbeats = worker.heartbeats && !another_kind;
  return another_kind;
}

StatusOr<NodeIndex> Fleet::add(Upstream upstream, bool comes_back) {
  if (comes_back) removed_.erase(upstream.id());
  const Upstream* configured = find_upstream(options_.workers, upstream.id());
  if (configured != nullptr && upstream.is_plain() && upstream.endpoint == configured->endpoint)
    upstream = *configured;
  // (The id of an address of a name reads like a path.)
  const auto slot = registry_.find_slot(upstream.id());
  if (slot && upstream.address.empty() && !workers_[*slot].upstream.address.empty())
    upstream = workers_[*slot].upstream;
  TROUPE_ASSIGN_OR_RETURN(const route::NodeRegistry::Added added,
                          registry_.add(new_node(upstream), comes_back));
  const bool connects = added.connect || !workers_[added.node].upstream.same_as(upstream);
  const bool another_kind = connects && connect(added, std::move(upstream));
  log_.info("worker_added", {{"worker", id(added.node)}});
  perform(added.actions);
  if (another_kind && member(added.node))
    perform(registry_.set_service(added.node, service_of(workers_[added.node].models, false)));
  return added.node;
}

void Fleet::drain(NodeIndex node, bool removes) {
  perform(removes ? registry_.retire(node, moment()) : registry_.drain(node, moment()));
}

void Fleet::remove(NodeIndex node) {
  if (find_upstream(options_.workers, id(node)) != nullptr) removed_.insert(id(node));
  perform(registry_.remove(node));
}

Status Fleet::can_change(const FleetOptions& options) {
  size_t wanted = 0;
  const route::NodeSlots& slots = registry_.slots();
  for (const Upstream& upstream : options.workers) {
    if (removed_.contains(upstream.id())) continue;
    const auto known = registry_.find_slot(upstream.id());
    if (!known || slots.is_free(*known)) wanted += 1;
  }
  const size_t room = slots.room();
  if (wanted <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("worker_urls: ", wanted, " workers are new, and there is room for ", room, " beside the ",
                   workers_.size(), " that are followed or still answer requests"));
}

void Fleet::change(const FleetOptions& options) {
  const std::vector<Upstream> before = std::exchange(options_.workers, options.workers);
  perform(registry_.change(options));
  for (const Upstream& upstream : options.workers) {
    const Upstream* known = find_upstream(before, upstream.id());
    const auto node = find(upstream.id());
    // (New connections use the files as they are now.)
    if (node && upstream.tls != nullptr && workers_[*node].upstream.tls != nullptr)
      workers_[*node].upstream.tls->context = upstream.tls->context;
    if (known != nullptr && known->same_as(upstream)) continue;
    // (An operator who drained or removed it did not do so for what has changed. The slot of a removed one
    // may be another's.)
    const bool removed = removed_.contains(upstream.id());
    if (known != nullptr && removed && !registry_.find_slot(upstream.id())) continue;
    if (const auto added = add(upstream, known == nullptr); !added.ok())
      log_.error("worker_not_added", {{"why", to_std(added.status().message())}});
  }
  for (const Upstream& upstream : before) {
    const auto node = find(upstream.id());
    if (find_upstream(options.workers, upstream.id()) != nullptr) continue;
    removed_.erase(upstream.id());
    if (node) drain(*node, true);
  }
}

std::string Fleet::name(NodeIndex node) const {
  constexpr size_t kDigits = 8;
  return "node-" + chain_hash(options_.name_salt.value_or(Hash128{}), id(node)).hex().substr(0, kDigits);
}

void Fleet::on_event(NodeIndex node, HealthEvent event, std::string_view why) {
  if (event == HealthEvent::kProbeOk) workers_[node].why.clear();
  if (event == HealthEvent::kProbeFail || event == HealthEvent::kProbeNotReady) workers_[node].why = why;
  perform(registry_.on_event(std::span(&node, 1), event, moment()),
          why.empty() ? route::reason_of(event) : why);
}

void Fleet::saw_notice(NodeIndex node, Duration takes_requests_for) {
  perform(registry_.saw_notice(node, takes_requests_for, moment()));
}

void Fleet::handover_done(NodeIndex node) {
  log_.info("sets_left", {{"worker", id(node)}});
  perform(registry_.handover_done(node));
}

bool Fleet::ramp() {
  perform(registry_.ramp(clock_.now()));
  return registry_.ramps();
}

void Fleet::set_models(NodeIndex node, std::vector<ModelCard> models) {
  if (!member(node)) return;
  Worker& worker = workers_[node];
  worker.models = std::move(models);
  perform(registry_.set_service(node, service_of(worker.models, worker.load.has_value())));
}

void Fleet::set_load(NodeIndex node, LoadReport report, const CacheReport& cache) {
  if (!member(node)) return;
  saw_epoch(node, report.epoch);
  router_.report(node, node_report(report, cache), clock_.now());
  Worker& worker = workers_[node];
  // A worker's sets are its only model's: of several it is not told whose a set is.
  if (worker.models.size() == 1) {
    std::vector<route::SetLoadMerger::Counter> counters;
    counters.reserve(report.sets.size());
    for (const LoadReport::SetWork& work : report.sets)
      counters.push_back({work.set, work.work_tokens_total, work.prefix_tokens});
    set_loads_.report(node, hash_bytes(report.epoch).lo, worker.models.front().id, counters);
  }
  const bool first = !worker.load;
  worker.load = std::move(report);
  if (first) perform(registry_.set_service(node, service_of(worker.models, true)));
}

// (Prompts that wait there are known of this gateway's own requests alone.)
void Fleet::set_foreign_load(NodeIndex node, route::NodeReport report) {
  if (!member(node) || is_troupe_worker(node)) return;
  report.pending_prefill_tokens = router_.loads().at(node).pending_tokens;
  router_.report(node, report, clock_.now());
}

void Fleet::saw_epoch(NodeIndex node, std::string_view epoch) {
  const route::NodeActions actions = registry_.saw_cache_epoch(node, epoch, moment());
  if (!actions.empty()) log_.info("worker_cache_empty", {{"worker", id(node)}, {"epoch", epoch}});
  perform(actions);
}

bool Fleet::reports_set_loads() const {
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    if (router_.view().routable(i) && !workers_[i].load) return false;
  }
  return router_.view().routable_count() > 0;
}

size_t Fleet::member_count() const {
  const auto nodes = registry_.nodes();
  return static_cast<size_t>(
      std::count_if(nodes.begin(), nodes.end(), [](const auto& node) { return node.member(); }));
}

std::vector<ModelCard> Fleet::models() const {
  std::vector<ModelCard> cards;
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    if (!router_.view().routable(i)) continue;
    for (const ModelCard& card : workers_[i].models) {
      const auto same = [&](const ModelCard& c) { return c.id == card.id; };
      const auto known = std::find_if(cards.begin(), cards.end(), same);
      if (known == cards.end()) {
        cards.push_back(card);
      } else {
        known->max_model_len = std::max(known->max_model_len, card.max_model_len);
      }
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
  schema
      .add("upstream.resolve_secs", &options.client.resolve_interval,
           "a worker's name is looked up again after this time, and its connections follow; 0: never")
      .range(0, 86'400)
      .unit("seconds");
}

}  // namespace troupe
