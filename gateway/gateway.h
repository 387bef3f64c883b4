#pragma once

// The gateway put together: both listeners, the fleet and its probes, the router and its tick. One io_context
// thread drives all of it.

#include <memory>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/http_server.h"
#include "common/net/task_group.h"
#include "gateway/admin.h"
#include "gateway/cluster/account_store.h"
#include "gateway/cluster/fleet.h"
#include "gateway/cluster/gossip.h"
#include "gateway/cluster/name_follower.h"
#include "gateway/cluster/pin_file.h"
#include "gateway/cluster/pin_reconciler.h"
#include "gateway/cluster/pin_store.h"
#include "gateway/cluster/prefix_migrator.h"
#include "gateway/cluster/prefix_text_cache.h"
#include "gateway/cluster/prober.h"
#include "gateway/cluster/residency_reader.h"
#include "gateway/cluster/shared_state.h"
#include "gateway/config.h"
#include "gateway/named_personas.h"
#include "gateway/proxy/accounts.h"
#include "gateway/proxy/admission_queue.h"
#include "gateway/proxy/proxy.h"
#include "gateway/route/router.h"
#include "gateway/telemetry/access_log.h"
#include "gateway/telemetry/instruments.h"
#include "gateway/telemetry/request_observers.h"
#include "gateway/telemetry/traffic_recorder.h"
#include "gateway/telemetry/usage_export.h"

namespace troupe {

class Gateway {
 public:
  Gateway(asio::io_context& io, const GatewayConfig& config, const Clock& clock, const Logger& log,
          uint64_t seed);

  Status start();  // opens the record, binds both ports, begins to probe and to accept
  uint16_t port() const { return main_server_.port(); }
  uint16_t metrics_port() const { return metrics_server_.port(); }
  // Applies the settings of `config` that may change at run time (SettingsSchema::Field::live), and reads the
  // API keys again. After an error all stays as it was. New certificates apply to new connections.
  Status change(const GatewayConfig& config);
  // Reopens files that may have been moved away (a rotated access log).
  void reopen_logs();
  size_t api_key_count() const { return api_keys_.size(); }
  // In steps: readiness ends, and connections end with their next answer, so that load balancers send no more
  // requests; after the notice, which may be zero, new requests are refused. Returns when running ones are
  // done or the grace, the notice included, is over and everything has stopped.
  Task<void> drain();

  Proxy& proxy() { return proxy_; }
  Fleet& fleet() { return fleet_; }
  Gossip& gossip() { return gossip_; }
  const route::Router& router() const { return router_; }
  const AdmissionQueue& admission_queue() const { return admission_queue_; }

 private:
  Task<void> plan_by_and_by();
  Task<void> share_limits();
  void plan();

  HttpServerOptions main_listener(HttpServerOptions options);
  HttpServerOptions metrics_listener(HttpServerOptions options);
  HttpServerOptions listener(HttpServerOptions options, const char* name);
  void use(const GatewayTls& tls);
  Task<void> give_notice(TimePoint until);
  Status load_keys();
  void share_pins(const GatewayConfig& config);
  Status start_record();
  Status start_observers();

  asio::io_context& io_;
  const Clock& clock_;
  const Logger& log_;
  struct KeyFiles {
    std::string api_keys;  // empty: no key is needed
    std::string tenant_secret;
    std::string user_salt;  // of hashed end users
  };
  const KeyFiles key_files_;
  const TelemetryOptions telemetry_;
  struct RecordSettings {
    std::string path;  // empty: traffic is not recorded
    Hash128 salt;
  };
  const RecordSettings record_settings_;
  const GatewayTls tls_;  // its sources are what the clients read
  std::chrono::seconds grace_, notice_;
  Duration plan_tick_;
  TimePoint planned_at_{};  // from the fleet's loads
  const int64_t gateways_min_;
  Metrics metrics_;
  Instruments instruments_;
  ApiKeys api_keys_;
  route::Router router_;
  Fleet fleet_;
  PrefixTextCache texts_;
  struct PrefixKeeping {
    PrefixMigrator migrator;
    PinReconciler pins;
    NamedPersonas personas;
    std::unique_ptr<PinStore> store = nullptr;  // null: this gateway alone knows its pins
    std::unique_ptr<PinFile> file = nullptr;    // null: in memory alone
  };
  PrefixKeeping prefixes_;
  struct WorkerWatch {
    NameFollower names;
    Prober prober;
  };
  WorkerWatch watch_;
  ResidencyReader residency_reader_;
  Gossip gossip_;
  std::unique_ptr<SharedState> state_;       // null: no state is shared
  std::unique_ptr<TrafficRecorder> record_;  // null: traffic is not recorded
  std::unique_ptr<AccessLog> access_log_;    // null: none
  std::unique_ptr<SpanExporter> exporter_;   // null: no spans
  RequestObservers observers_;
  AdmissionQueue admission_queue_;
  struct AccountKeeping {
    std::unique_ptr<UsageExport> usage;          // null: usage is not exported
    std::unique_ptr<AccountStore> store;         // null: limits are divided among gateways
    std::unique_ptr<ModerationHook> moderation;  // null: nothing is judged
  };
  AccountKeeping keeping_;
  Accounts accounts_;
  Proxy proxy_;
  Admin admin_;
  HttpServer main_server_;
  HttpServer metrics_server_;
  TaskGroup background_;
};

}  // namespace troupe
