// Workers' slots: who gets one, and when that of a removed worker is another's.
//
// Everything that is known of a worker is kept by its slot, here and in the router, and much of what is under
// way means a worker by it: a request its candidates, a probe whom it asked. So a slot waits until all that
// was under way when its worker was removed has ended. That is told by eras: one ends with a removal, whoever
// begins something belongs to the era he begins in, and a slot is free when all eras up to its own are over.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/cluster/fleet.h"

namespace troupe {

using route::NodeIndex;
using route::NodeState;

namespace {

constexpr const char* kUpGauge = "troupe_gateway_worker_up";
constexpr const char* kStateGauge = "troupe_gateway_worker_state";
const std::vector<double> kConnectBuckets{1e-4,   2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2,
                                          2.5e-2, 5e-2,   0.1,  0.25, 0.5,    1,    2.5};

}  // namespace

// The histograms are the registry's, which outlives every connection.
std::unique_ptr<HttpClient> Fleet::make_client(const Endpoint& endpoint) {
  const auto took = [this](const char* result) {
    return &metrics_.histogram("troupe_gateway_connect_seconds",
                               "New connections to workers, of probes too: name lookup, TCP and TLS "
                               "handshakes, by whether they came to be.",
                               kConnectBuckets, {{"result", result}});
  };
  HttpClientOptions client = options_.client;
  client.on_connect = [connected = took("connected"), failed = took("failed")](Duration duration, bool ok) {
    (ok ? connected : failed)->Observe(std::chrono::duration<double>(duration).count());
  };
  return std::make_unique<HttpClient>(executor_, endpoint, std::move(client));
}

Fleet::Worker Fleet::make_worker(const Endpoint& endpoint) {
  Worker worker;
  worker.id = endpoint.authority();
  worker.url = endpoint.url();
  worker.client = make_client(endpoint);
  worker.health = route::NodeHealth(options_.health);
  give_gauges(worker);
  return worker;
}

void Fleet::give_gauges(Worker& worker) {
  worker.up = &metrics_.gauge(kUpGauge, "1 while the worker may be sent requests.", {{"worker", worker.id}});
  const auto give = [&](std::string_view state) {
    worker.states[state] = &metrics_.gauge(
        kStateGauge,
        "1 for the state the worker is in; failing: it passes its probes, and its answers are errors.",
        {{"worker", worker.id}, {"state", std::string(state)}});
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

uint64_t Fleet::begin_hold() {
  holds_.back() += 1;
  return first_era_ + holds_.size() - 1;
}

void Fleet::end_hold(uint64_t era) {
  holds_[era - first_era_] -= 1;
  while (holds_.size() > 1 && holds_.front() == 0) {
    holds_.pop_front();
    first_era_ += 1;
  }
}

// The last era in which somebody holds slots. (Where nobody does in this one, it need not end for it.)
uint64_t Fleet::end_era() {
  const uint64_t now = first_era_ + holds_.size() - 1;
  if (holds_.back() == 0) return now - 1;
  holds_.push_back(0);
  return now;
}

std::optional<NodeIndex> Fleet::longest_free() const {
  std::optional<NodeIndex> found;
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    if (is_free(workers_[i]) && (!found || workers_[i].removed_in < workers_[*found].removed_in)) found = i;
  }
  return found;
}

// A slot for a worker that has none.
StatusOr<NodeIndex> Fleet::place(const Endpoint& endpoint) {
  if (const auto free = longest_free()) {
    workers_[*free] = make_worker(endpoint);
    set_loads_.forget(*free);
    if (on_replaced) on_replaced(*free);
    return *free;
  }
  if (workers_.size() >= options_.workers_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.workers_max,
                     " workers are followed, the most that are told apart (those included "
                     "that were removed and whose requests still run); remove some first"));
  }
  workers_.push_back(make_worker(endpoint));
  return static_cast<NodeIndex>(workers_.size() - 1);
}

Status Fleet::can_change(const FleetOptions& options) const {
  size_t wanted = 0, room = options_.workers_max - std::min(options_.workers_max, workers_.size());
  for (const Worker& worker : workers_) room += is_free(worker) ? 1 : 0;
  for (const Endpoint& endpoint : options.workers) {
    const std::string id = endpoint.authority();
    const auto known =
        std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.id == id; });
    if (known == workers_.end() || is_free(*known)) wanted += 1;
  }
  if (wanted <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("worker_urls: ", wanted, " workers are new, and there is room for ", room, " beside the ",
                   workers_.size(), " that are followed or still answer requests"));
}

size_t Fleet::member_count() const {
  return static_cast<size_t>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.removed; }));
}

std::optional<NodeIndex> Fleet::find(std::string_view id) const {
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    if (workers_[i].id == id && member(i)) return i;
  }
  return std::nullopt;
}

StatusOr<NodeIndex> Fleet::add(const Endpoint& endpoint) {
  const std::string id = endpoint.authority();
  const auto known =
      std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.id == id; });
  auto node = static_cast<NodeIndex>(known - workers_.begin());
  if (known != workers_.end()) {
    if (known->client->endpoint() != endpoint) {  // it speaks TLS now, or does not any more
      known->client = make_client(endpoint);
      known->url = endpoint.url();
    }
    known->retired = false;
    if (std::exchange(known->drained, false) && !known->notified) come_back(node);
    if (std::exchange(known->removed, false)) {
      known->health = route::NodeHealth(options_.health);
      known->notified = false;
      give_gauges(*known);
    }
  } else {
    TROUPE_ASSIGN_OR_RETURN(node, place(endpoint));
    if (awaits_members_) {
      workers_[node].awaited = true;
      unprobed_ += 1;
    }
  }
  log_.info("worker_added", {{"worker", id}});
  publish();
  if (on_joined) on_joined(node);
  return node;
}

void Fleet::remove(NodeIndex node) {
  Worker& worker = workers_[node];
  worker.removed = true;
  worker.removed_in = end_era();
  come_back(node);
  worker.models.clear();
  worker.load.reset();
  worker.client->close_idle();
  await_no_more(worker);
  take_gauges(worker);
  router_.forget_node(node);
  log_.info("worker_removed", {{"worker", worker.id}});
  publish();
}

}  // namespace troupe
