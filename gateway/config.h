#pragma once

// The gateway's settings: defaults here, descriptions and ranges in describe_settings(), commented values in
// configs/gateway.yaml.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/http_client.h"
#include "common/net/http_server.h"
#include "common/net/tls_settings.h"
#include "common/settings/schema.h"
#include "gateway/cluster/fleet.h"
#include "gateway/cluster/gossip.h"
#include "gateway/cluster/prefix_migrator.h"
#include "gateway/cluster/prober.h"
#include "gateway/cluster/residency_reader.h"
#include "gateway/cluster/shared_state.h"
#include "gateway/proxy/admission_queue.h"
#include "gateway/proxy/proxy.h"
#include "gateway/route/request/retry.h"
#include "gateway/route/router.h"
#include "gateway/route/settings.h"
#include "gateway/telemetry/access_log.h"
#include "gateway/telemetry/span_exporter.h"

namespace troupe {

// What is seen of requests from outside.
struct TelemetrySettings {
  std::string access_log = std::string(kAccessLogOff);  // or kAccessLogStderr, or a file's path
  struct Otlp {
    std::string endpoint;  // empty: no spans
    std::string service_name = "troupe-gateway";
    double sample_ratio = 1;
    int64_t queue_bytes = 16 << 20;
    int64_t batch_bytes = 256 << 10;
    int64_t interval_ms = 1000;
    int64_t timeout_ms = 10'000;
  } otlp;
};
struct TelemetryOptions {
  std::string access_log = std::string(kAccessLogOff);
  std::optional<SpanExporterOptions> otlp;
  double sample_ratio = 1;
};

struct GatewaySettings {
  std::string host = "127.0.0.1";
  int64_t port = 30000;
  std::string metrics_host;  // empty: as host
  int64_t metrics_port = 29000;
  std::vector<std::string> worker_urls;

  std::string state = "memory";
  std::vector<std::string> etcd_endpoints;
  std::string etcd_prefix = std::string(kStatePrefix);
  int64_t etcd_lease_ttl_secs = 5;

  TlsFiles tls, upstream_tls, etcd_tls;
  bool metrics_tls = false;

  struct Handover {
    int64_t text_bytes = 64 << 20;
    int64_t at_once = 2;
    int64_t deadline_secs = 20;
    int64_t ramp_secs = 10;
  } handover;

  route::RouteSettings route;
  int64_t gateways = 1;

  int64_t request_timeout_secs = 1800;
  int64_t stream_heartbeat_timeout_ms = 400;
  int64_t foreign_worker_silence_timeout_ms = 60'000;
  int64_t foreign_worker_stall_timeout_ms = 120'000;
  int64_t shutdown_grace_period_secs = 180;
  int64_t shutdown_notice_secs = 0;
  std::string api_keys;       // a file; empty: anybody may ask
  std::string tenant_secret;  // a file; needed where keys name tenants
  std::string record;         // empty: traffic is not recorded
  std::string record_secret;  // a file; empty: each run salts its record alone
  std::string log_level = "info";
  TelemetrySettings telemetry;

  struct Probe {
    int64_t interval_ms = 1000;
    int64_t timeout_ms = 1000;
    int64_t dead_after = 3;
    int64_t alive_after = 1;
  } probe;
  struct Gossip {
    std::vector<std::string> peers;
    std::string advertise_url;
    std::string secret;  // a file; empty: whatever comes is taken
    int64_t interval_ms = 20;
    bool ledger = true;
  } gossip;
  struct Retry {
    int64_t attempts_max = 3;
    double budget_ratio = 0.2;
    double budget_per_s = 10;
    double budget_max = 1000;
    bool resend_to_foreign = true;
  } retry;
  struct Admission {
    double worker_fill = 1.25;
    int64_t worker_requests = 0;
    int64_t foreign_worker_requests = 256;
    int64_t queue = 1024;
    int64_t queue_timeout_ms = 60'000;
    bool fair = true;
    int64_t requests = 0;
    int64_t tokens = 0;
    int64_t persona_requests = 0;
    int64_t persona_tokens = 0;
  } admission;
  struct Limits {
    int64_t body_bytes = 16 << 20;
    int64_t bodies_bytes = 1 << 30;
    int64_t header_bytes = 32 << 10;
    int64_t header_timeout_ms = 10'000;
    int64_t body_timeout_ms = 30'000;
    int64_t idle_timeout_ms = 75'000;
    int64_t write_timeout_ms = 30'000;
    int64_t requests = 4096;
    int64_t tokenize_requests = 256;
    int64_t connections = 8192;
    int64_t worker_requests = 0;
  } limits;
  struct Upstream {
    int64_t connect_timeout_ms = 2000;
    int64_t idle_connections = 512;
    int64_t idle_timeout_ms = 60'000;
  } upstream;
};

// `settings` must outlive the schema.
void describe_settings(GatewaySettings& settings, SettingsSchema& schema);

// What new connections use; see Gateway::change().
struct GatewayTls {
  std::shared_ptr<const TlsContext> listener;  // null: plain HTTP
  std::shared_ptr<TlsSource> upstream = std::make_shared<TlsSource>();
  std::shared_ptr<TlsSource> etcd = std::make_shared<TlsSource>();
};

// The settings checked against each other and turned into what the parts take. Errors name the key.
struct GatewayConfig {
  GatewayTls tls;
  HttpServerOptions main_server;
  HttpServerOptions metrics_server;
  FleetOptions fleet;
  ProberOptions prober;
  size_t prefix_text_bytes = 64 << 20;
  PrefixMigratorOptions migrator;
  ResidencyReaderOptions residency;
  GossipOptions gossip;
  SharedStateOptions state;
  ProxyOptions proxy;
  AdmissionQueueOptions admission_queue;
  route::RouterOptions router;
  std::chrono::seconds grace{180}, notice{0};
  std::string api_keys, tenant_secret, record;
  bool metrics_demands_certificates = false;  // the metrics port, of whoever comes
  std::optional<Hash128> record_salt;         // none: one of this run's own
  TelemetryOptions telemetry;
  LogLevel log_level = LogLevel::kInfo;
};
// TLS has its files read, and checked against each other.
StatusOr<GatewayConfig> make_config(const GatewaySettings& settings);
// Open at once, at most.
size_t files_needed(const GatewayConfig& config);

// Their part in what gateways share. REQUIRES: `config` has workers and router.
void describe_state(GatewaySettings& settings, SettingsSchema& schema);
Status make_state(const GatewaySettings& settings, GatewayConfig& config);
// And in what is seen from outside.
void describe_telemetry(TelemetrySettings& telemetry, SettingsSchema& schema);
Status make_telemetry(const GatewaySettings& settings, GatewayConfig& config);

// config_admission.cc
void describe_admission(GatewaySettings::Admission& admission, SettingsSchema& schema);
StatusOr<AdmissionQueueOptions> make_admission_queue(const GatewaySettings::Admission& admission);

// config_access.cc
void describe_access(GatewaySettings& settings, SettingsSchema& schema);
Status make_access(const GatewaySettings& settings, GatewayConfig& config);
// What anybody who reaches the metrics port may do there, and the settings that end it; both empty: nothing,
// or nobody reaches it from other machines.
struct ExposedEndpoints {
  std::string open, close;
};
ExposedEndpoints exposed_endpoints(const GatewayConfig& config);

// config_tls.cc
void describe_tls(GatewaySettings& settings, SettingsSchema& schema);
Status make_tls(const GatewaySettings& settings, GatewayConfig& config);

}  // namespace troupe
