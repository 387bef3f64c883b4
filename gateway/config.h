#pragma once

// The gateway's settings. Each one stands with its part: the default in the part's options, the row in the
// part's describe(). This file composes them and checks one part against another. configs/gateway.yaml
// comments every key.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/http_server.h"
#include "common/net/tls_settings.h"
#include "common/settings/schema.h"
#include "gateway/access/worker_url_rules.h"
#include "gateway/cluster/fleet.h"
#include "gateway/cluster/gossip.h"
#include "gateway/cluster/prefix_migrator.h"
#include "gateway/cluster/prober.h"
#include "gateway/cluster/residency_reader.h"
#include "gateway/cluster/shared_state.h"
#include "gateway/named_personas.h"
#include "gateway/proxy/admission_queue.h"
#include "gateway/proxy/proxy_settings.h"
#include "gateway/route/options.h"
#include "gateway/route/placement/pin_registry.h"
#include "gateway/telemetry/telemetry_settings.h"

namespace troupe {

struct HandoverSettings : PrefixMigratorOptions {
  size_t text_bytes = 64 << 20;
};

struct PinSettings : route::PinOptions {
  std::string file;  // see PinFile; empty: kept in memory alone
};

// The options of the parts, as the parts declare them. Settings bind to these; a field without a key keeps
// the part's default.
struct GatewayParts {
  HttpServerOptions main_server;
  HttpServerOptions metrics_server;
  FleetOptions fleet;
  ProberOptions prober;
  PinSettings pins;
  PersonaSettings personas;
  HandoverSettings migrator;
  ResidencyReaderOptions residency;
  GossipOptions gossip;
  SharedStateOptions state;
  ProxyOptions proxy;
  AdmissionQueueOptions admission_queue;
  route::RouterOptions router;
  std::chrono::seconds grace{180}, notice{0};
  std::string api_keys;                  // a file; empty: any client may ask
  std::string tenant_secret;             // a file; needed where keys name tenants
  std::string record;                    // empty: traffic is not recorded
  std::vector<std::string> admin_hosts;  // Admin::answer_to()
  LogLevel log_level = LogLevel::kInfo;
};

// Adds the settings that stay text until make_config() reads them.
struct GatewaySettings : GatewayParts {
  GatewaySettings();  // sets the defaults in which the program differs from a part alone

  std::vector<std::string> worker_urls;
  std::vector<SettingsItem> upstreams;  // config_upstreams.cc
  std::vector<SettingsItem> routes;     // config_models.cc
  std::string state_store = "memory";   // or etcd
  std::vector<std::string> etcd_endpoints;
  TlsFiles tls, upstream_tls, etcd_tls;
  bool metrics_tls = false;
  std::vector<std::string> gossip_peers;
  std::vector<std::string> worker_urls_allowed;
  std::string gossip_secret;  // a file; empty: all messages are taken
  std::string record_secret;  // a file; empty: each run salts its record alone
  TelemetrySettings telemetry;
};

// `settings` must outlive the schema.
void describe_settings(GatewaySettings& settings, SettingsSchema& schema);

// Contexts for new connections; see Gateway::change().
struct GatewayTls {
  std::shared_ptr<const TlsContext> listener;  // null: plain HTTP
  std::shared_ptr<TlsSource> upstream = std::make_shared<TlsSource>();
  std::shared_ptr<TlsSource> etcd = std::make_shared<TlsSource>();
};

// The checked settings, with everything that follows from them.
struct GatewayConfig : GatewayParts {
  GatewayTls tls;
  bool metrics_demands_certificates = false;  // the metrics port, of every client
  WorkerUrlRules workers_addable;             // Admin::add_only()
  std::optional<Hash128> record_salt;         // none: one of this run's own
  std::string user_salt = "end users";        // of hashed end users
  TelemetryOptions telemetry;
};
// Errors name the key. Reads the TLS files and checks them against each other.
StatusOr<GatewayConfig> make_config(const GatewaySettings& settings);
// Whether the files that a start makes or opens could be: --check-config makes none. Errors name the key.
Status check_files(const GatewayConfig& config);
// Open at once, at most.
size_t files_needed(const GatewayConfig& config);

// config_upstreams.cc: the workers of worker_urls and upstreams, with their keys and TLS files read. Those
// with `each` are names.
StatusOr<std::vector<Upstream>> make_upstreams(const GatewaySettings& settings);

// config_models.cc: names of models that lead to others.
StatusOr<ModelRoutes> make_routes(const GatewaySettings& settings);

// config_access.cc
void describe_access(GatewaySettings& settings, SettingsSchema& schema);
Status make_access(const GatewaySettings& settings, GatewayConfig& config);
// Endpoints open to any client that reaches the metrics port, and the settings that close them; both empty:
// there are none, or no other machine reaches the port.
struct ExposedEndpoints {
  std::string open, close;
};
ExposedEndpoints exposed_endpoints(const GatewayConfig& config);

}  // namespace troupe
