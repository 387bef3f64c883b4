#pragma once

// The fleet's shared state in etcd: its workers and gateways, the planner, and the table (worker_discovery.h,
// peer_discovery.h, route/placement/shared_table.h). Two tasks, invisible to requests: one keeps this
// gateway's lease and loads there and plans where it leads, the other reads and watches. The rules are in
// route/leader_sync.h, etcd's keys and requests here. While etcd is silent, slow or gone, both keep
// trying, the gateway reports itself degraded (troupe_gateway_state_degraded, the log), and all goes on as it
// was: the last table, the known workers, by their probes. All calls on the io_context's thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/etcd/etcd.h"
#include "common/etcd/keys.h"
#include "common/net/task_group.h"
#include "common/net/wakeable_timer.h"
#include "gateway/cluster/peer_discovery.h"
#include "gateway/cluster/worker_discovery.h"
#include "gateway/route/leader_sync.h"
#include "gateway/route/router.h"

namespace troupe {

class SettingsSchema;

struct SharedStateOptions {
  EtcdOptions etcd;  // no members: no state is shared
  std::string prefix{kStatePrefix};
  std::chrono::seconds lease_ttl{5};
  Duration plan_tick = std::chrono::seconds(4);
  int64_t gateways = 1;              // least number that shares the fleet, however many are present
  std::vector<std::string> workers;  // ids of those known without etcd
  // Address of this gateway for gossip from the others, the url of its metrics port; empty: none, and it
  // finds no peers. GossipOptions::finds where it is set.
  std::string advertise_url;
};
// Describes etcd_prefix, etcd_lease_ttl_secs. `options` must outlive the schema.
void describe(SettingsSchema& schema, SharedStateOptions& options);

class SharedState {
 public:
  struct Parts {
    Executor executor;
    Fleet& fleet;
    route::Router& router;
    Gossip& gossip;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  // REQUIRES: etcd has members. The router has RouterOptions::shared_table.
  SharedState(const SharedStateOptions& options, const Parts& parts);
  ~SharedState();
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;

  // Starts endless tasks in `group`: cancel the group to stop them.
  void start(TaskGroup& group);
  // REQUIRES: its tasks have ended. Deletes this gateway's keys, so that no peer waits for its lease to run
  // out.
  Task<void> leave();

  bool degraded() const { return !keeps_ || !watches_; }
  // This gateway's place among those with a lease, as last read: alone until then.
  const route::GatewayShard& place() const { return round_.place(); }

 private:
  // shared_state.cc: reading what is there.
  Task<void> follow();
  Task<Status> read_and_watch();
  void take(const etcd::TxnAnswer& all, int64_t known);
  void take(const etcd::WatchMessage& news);
  void take_gateway(const etcd::WatchEvent& event);
  void apply(const route::StoreUpdate& update);
  void sync_now();
  void report_other_sets();
  void report_state();

  // shared_state_lead.cc: writing this gateway's own keys.
  Task<void> keep();
  Task<Status> keep_once();
  Task<Status> do_ask(const route::StoreCommand& ask);
  Task<Status> put_loads(const route::StoreCommand& ask);
  etcd::Txn txn_of(const route::StoreCommand& ask) const;
  route::StoreAnswer answer_of(const etcd::TxnAnswer& answer) const;

  const SharedStateOptions options_;
  const StateKeys keys_;
  const Executor executor_;
  route::Router& router_;
  const Clock& clock_;
  const Logger& log_;
  const std::string name_;
  EtcdClient etcd_;
  EtcdLease lease_;
  WorkerDiscovery membership_;
  PeerDiscovery peers_;
  route::LeaderSync round_;
  WakeableTimer pause_;                  // keep()'s pause; cut short when there is something to do
  bool keeps_ = false;                   // the last round of keep() succeeded
  bool watches_ = false;                 // changes are watched
  std::optional<bool> logged_degraded_;  // as last logged
  std::string why_;                      // reason of it
  bool led_ = false;
  bool table_other_kind_ = false;   // the one in etcd is of a kind that this gateway ignores
  bool logged_other_sets_ = false;  // as last logged

  Gauge& degraded_gauge_;
  Gauge& leads_gauge_;
  Gauge& workers_gauge_;
  Gauge& gateways_gauge_;
  Gauge& other_sets_gauge_;
  Counter& written_;
  Counter& refused_;
  Counter& adopted_;
  Counter& ignored_;
  Counter& failed_;
};

route::StoreKey store_key(const etcd::KeyValue& kv);

// The gauges of that state; 0 for a gateway that shares none.
Gauge& state_degraded_gauge(Metrics& metrics);
Gauge& state_other_sets_gauge(Metrics& metrics);

}  // namespace troupe
