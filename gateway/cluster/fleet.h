#pragma once

// The workers this gateway knows, and an operator may change: for each its connections, its models and its
// last load report. Their health, life cycle, weights and slots are the NodeRegistry's
// (route/fleet/node_registry.h): the fleet feeds it what probes, requests and operators say, and performs its
// actions over sockets, metrics and the router. All calls on the io_context's thread.
//
// All other code knows a worker by its slot. The slot of a removed worker is given to another when no code
// can mean the removed one by it any more: code that keeps slots across a wait has a Hold, or says that it
// listens to the worker.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/api/api.h"
#include "common/api/cache_report.h"
#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/http_client.h"
#include "gateway/cluster/upstream.h"
#include "gateway/cluster/worker_gauges.h"
#include "gateway/route/fleet/node_registry.h"
#include "gateway/route/fleet/set_stats.h"
#include "gateway/route/router.h"

namespace troupe {

class SettingsSchema;

struct FleetOptions : route::NodeRegistryOptions {
  std::vector<Upstream> workers;
  std::vector<Upstream> names;  // every address of which is a worker: NameFollower's
  HttpClientOptions client;
  Duration set_loads_half_life = std::chrono::seconds(20);
  size_t sets_max = 16'384;
  std::optional<Hash128> name_salt;  // see Fleet::name()
};
// Describes upstream.*, handover.ramp_secs, limits.worker_requests, probe.dead_after, .alive_after. `options`
// must outlive the schema.
void describe(SettingsSchema& schema, FleetOptions& options);

class Fleet {
 public:
  struct Parts {
    Executor executor;
    route::Router& router;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  Fleet(const FleetOptions& options, const Parts& parts);

  // Health, bounds and ramp are these from now on. Workers that are in these options and were not in the last
  // ones join, those that are not any more leave and are removed then. Workers that an operator has added or
  // removed besides stay so.
  // REQUIRES: can_change().
  void change(const FleetOptions& options);
  // The error says why not all of these workers can be followed besides those that are.
  Status can_change(const FleetOptions& options);

  // While a Hold lives, the slot of a worker that is removed meanwhile is not given to another. Held for as
  // long as a request lasts, not for ever. The fleet outlives it.
  class Hold {
   public:
    explicit Hold(Fleet& fleet) : slots_(fleet.registry_.slots()), slot_epoch_(slots_.begin_hold()) {}
    ~Hold() { slots_.end_hold(slot_epoch_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    route::NodeSlots& slots_;
    const route::NodeSlots::Epoch slot_epoch_;
  };
  // While a reader of this worker's events listens, however long, its slot is not given to another.
  void listens(route::NodeIndex node, bool listens) { registry_.slots().listens(node, listens); }

  // Slots, those of removed workers included.
  size_t size() const { return registry_.nodes().size(); }
  size_t member_count() const;
  bool member(route::NodeIndex node) const { return registered(node).member(); }
  std::optional<route::NodeIndex> find(std::string_view id) const {
    return registry_.find(id);
  }  // of members
  // A worker joins, or comes back from drain() or remove(), or is reached in another way (https, http) from
  // now on. One that is named by its address alone is reached as it is configured, if it is. `comes_back`
  // false: one that is drained or removed stays so. kResourceExhausted: more are here than are followed.
  StatusOr<route::NodeIndex> add(Upstream upstream, bool comes_back = true);
  // New requests go elsewhere, those of its sets when these have moved; running ones end as they do. Until
  // add(). `removes`: it is removed then.
  void drain(route::NodeIndex node, bool removes = false);
  // At once and for good: it is probed no more, and what it held is forgotten. A configured one stays
  // removed, also while another has its slot, until it is added again or is new in the configuration.
  void remove(route::NodeIndex node);

  HttpClient& client(route::NodeIndex node) { return *workers_[node].client; }
  const Upstream& upstream(route::NodeIndex node) const { return workers_[node].upstream; }
  const std::string& id(route::NodeIndex node) const { return registered(node).id; }
  const route::RegisteredNode& registered(route::NodeIndex node) const { return registry_.nodes()[node]; }
  // The worker's name for clients that may not know its address.
  std::string name(route::NodeIndex node) const;
  // A removed worker counts as dead.
  route::NodeState state(route::NodeIndex node) const { return registered(node).state(); }

  // An event that probes or requests saw, and for the log why it failed. A change of state makes a new view;
  // death also forgets what the node held.
  void on_event(route::NodeIndex node, route::HealthEvent event, std::string_view why = "");
  void set_models(route::NodeIndex node, std::vector<ModelCard> models);
  void set_load(route::NodeIndex node, LoadReport report, const CacheReport& cache = {});
  // The load of a worker of another kind, as far as it reports it.
  void set_foreign_load(route::NodeIndex node, route::NodeReport report);
  // It is not ready any more and says that it takes requests for so long still.
  void saw_notice(route::NodeIndex node, Duration takes_requests_for);
  // The epoch, from a load report or a residency event, names the life of the worker's cache: a new one means
  // that the cache began empty.
  void saw_epoch(route::NodeIndex node, std::string_view epoch);

  // Its sets are on their way to others: requests of those that have not moved still go there.
  bool leaving(route::NodeIndex node) const { return registered(node).leaving(); }
  void handover_done(route::NodeIndex node);  // they have moved. REQUIRES: leaving(node)
  // By and by, workers that joined weigh more. False: none does.
  bool ramp();

  // Troupe's own, not another kind of server: it answers GET /v1/load.
  bool is_troupe_worker(route::NodeIndex node) const { return workers_[node].load.has_value(); }
  // Its streams bring heartbeats, from their head on: one that falls silent hangs.
  bool heartbeats(route::NodeIndex node) const { return workers_[node].heartbeats; }
  void on_heartbeat(route::NodeIndex node) { workers_[node].heartbeats = true; }
  // By its probes, not by an operator's word.
  bool known_dead(route::NodeIndex node) const { return registered(node).known_dead(); }
  // The caller waits to know whether the worker lives: it is probed at once, if it has not just been.
  void probe_now(route::NodeIndex node) {
    if (on_suspicion) on_suspicion(node);
  }

  // All workers that can be routed to report what each set costs them: the planner may go by the whole
  // fleet's loads, which are the same at every gateway.
  bool reports_set_loads() const;
  route::SetLoads take_set_loads(TimePoint now) { return set_loads_.take(now); }

  // For discovery, where it is to name the members.
  route::InitialProbing& initial_probing() { return registry_.initial_probing(); }
  // Every worker of the start has been probed: from here on "no worker" is known, not guessed.
  bool probed() const { return registry_.initial_probing().over(); }
  // Union over the workers that can be routed to, by id, each with its longest context.
  std::vector<ModelCard> models() const;
  // GET /admin/workers.
  std::string workers_json() const;

  // Called when a failure asks for a probe at once, and when a worker has joined; set by the prober.
  std::function<void(route::NodeIndex)> on_suspicion;
  std::function<void(route::NodeIndex)> on_joined;
  // Set by the mover; without it there is nothing to wait for. A worker drains, and its sets have until then
  // to move, then handover_done(). A worker can be routed to that holds nothing.
  std::function<void(route::NodeIndex, TimePoint until)> on_leaving;
  std::function<void(route::NodeIndex)> on_begins_empty;
  // Set by the residency reader. There is a new view, or it was forgotten what a worker holds. Called in the
  // midst of it: to be looked into later.
  std::function<void()> on_changed;
  // Another worker has this slot from now on, and nothing that was kept of the last one is true of it.
  std::function<void(route::NodeIndex)> on_replaced;

 private:
  struct Worker {
    Upstream upstream;
    std::unique_ptr<HttpClient> client;
    std::vector<ModelCard> models;
    // Its own reports, until it dies: another program may come back.
    std::optional<LoadReport> load;
    bool heartbeats = false;
    std::string why;  // its last probe failed; empty: it did not
  };
  route::NodeRegistry::Moment moment() const;
  void perform(const route::NodeActions& actions, std::string_view why = "");
  void log_action(const route::NodeAction& action, std::string_view why) const;
  std::unique_ptr<HttpClient> make_client(const Upstream& upstream);
  bool connect(const route::NodeRegistry::Added& added, Upstream upstream);

  FleetOptions options_;
  const Executor executor_;
  Metrics& metrics_;
  route::Router& router_;
  const Clock& clock_;
  const Logger& log_;
  route::NodeRegistry registry_;
  std::vector<Worker> workers_;  // by slot, as registry_.nodes()
  route::SetLoadMerger set_loads_;
  WorkerGauges gauges_;
  std::set<std::string> removed_;  // configured ones, by id
};

}  // namespace troupe
