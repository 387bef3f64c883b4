#include "gateway/config.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/net/http_settings.h"
#include "common/settings/log_levels.h"
#include "gateway/access/secret.h"
#include "gateway/cluster/name_follower.h"
#include "gateway/cluster/persona_file.h"
#include "gateway/cluster/pin_file.h"
#include "gateway/proxy/proxy_settings.h"
#include "gateway/route/settings.h"
#include "gateway/telemetry/append_log.h"
#include "gateway/telemetry/traffic_recorder.h"

namespace troupe {
namespace {

constexpr HttpLimitSettings kHttpLimits = {
    .body_bytes = {"request body, at most", 1e9},
    .bodies_bytes = {"of all requests together; more are answered 503", 1e12},
    .header_bytes = {"request head, at most", 1e6},
    .connections = {"client connections at once", 1e6},
    .write_timeout_doc = "a client that takes nothing for this long is cut off",
    .timeout_ms_most = 3.6e6,
    .live = true,
};

void describe_listeners(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("host", &s.main_server.host, "address to listen on");
  schema.add("port", &s.main_server.port, "port to listen on").range(0, 65535);
  schema.add("metrics_host", &s.metrics_server.host,
             "address for metrics, probes and /admin; empty: as host");
  schema.add("metrics_port", &s.metrics_server.port, "their port").range(0, 65535);
}

void describe_tls(GatewaySettings& s, SettingsSchema& schema) {
  describe_tls_listener(schema, "tls", s.tls, TlsReload::kOnSighup);
  schema.add("metrics_tls", &s.metrics_tls, "the metrics port speaks TLS, too, as `tls` says").live();
  describe_tls_client(schema, "upstream_tls", "workers and other gateways", s.upstream_tls,
                      TlsReload::kOnSighup);
  describe_tls_client(schema, "etcd_tls", "etcd's members", s.etcd_tls, TlsReload::kOnSighup);
}

// Describes what gateways share: etcd, routing, gossip.
void describe_sharing(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("state", &s.state_store, "where gateways share workers and table; memory: nowhere")
      .choices({"memory", "etcd"});
  schema.add("etcd_endpoints", &s.etcd_endpoints,
             "etcd's members, such as http://127.0.0.1:2379,http://127.0.0.1:3379");
  describe(schema, s.state);
  route::describe_policy(schema, s.router);
  route::describe_route(schema, s.router);
  schema.add("route.gateways", &s.gossip.rules.gateways, "gateways that share these workers").range(1, 1024);
  schema.add("gossip.peers", &s.gossip_peers,
             "metrics ports of the other gateways, such as http://127.0.0.1:29001");
  schema.add("gossip.advertise_url", &s.state.advertise_url,
             "with state: etcd, the URL of this gateway's metrics port: others find it there, and it them");
  describe(schema, s.gossip);
}

void describe_handover(GatewaySettings& s, SettingsSchema& schema) {
  schema
      .add("handover.text_bytes", &s.migrator.text_bytes,
           "memory for texts of personas, to have them computed ahead of their requests; 0: never")
      .range(0, 1e12)
      .unit("bytes");
  schema.add("handover.at_once", &s.router.moves_at_once, "personas computed ahead at once").range(1, 256);
  describe(schema, s.migrator);
}

void describe_personas(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("personas.dir", &s.personas.dir,
             "folder of personas that all may name in their requests: a YAML or JSON file each; empty: none");
  schema.add(
      "personas.file", &s.personas.file,
      "file that keeps the personas that clients publish, without state: etcd; empty: in memory alone");
  schema
      .add("personas.per_owner", &s.personas.per_owner, "published personas of one API key, or of its tenant")
      .range(0, 1e6)
      .live();
  schema.add("personas.versions", &s.personas.versions, "versions kept of each, for requests that name one")
      .range(1, 64)
      .live();
  schema.add("personas.text_bytes", &s.personas.text_bytes, "memory for the texts of all personas")
      .range(0, 1e12)
      .unit("bytes")
      .live();
}

void describe_pins(GatewaySettings& s, SettingsSchema& schema) {
  schema
      .add("pins.kv_share", &s.pins.kv_share,
           "of a worker's KV cache that the pinned prefixes of one API key, or of its tenant, may take")
      .range(0, 1)
      .live();
  schema.add("pins.per_owner", &s.pins.per_owner, "pinned prefixes of one API key, or of its tenant")
      .range(0, 1e6)
      .live();
  schema
      .add("pins.ttl_max_secs", &s.pins.ttl_max,
           "longest that one of an API key lasts, and how long one that says nothing does")
      .range(1, 31'622'400)
      .unit("seconds")
      .live();
  schema
      .add("pins.text_bytes", &s.pins.text_bytes,
           "memory for pinned prefixes, to have them computed anew where a worker lost them")
      .range(0, 1e12)
      .unit("bytes")
      .live();
  schema.add(
      "pins.file", &s.pins.file,
      "file of this gateway's pinned prefixes, for when it begins again; its own, and not with state: etcd");
}

void describe_shutdown(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("shutdown_grace_period_secs", &s.grace, "how long running requests may take after SIGTERM")
      .range(0, 86'400)
      .unit("seconds")
      .live();
  schema
      .add("shutdown_notice_secs", &s.notice,
           "of that, how long new requests are still taken while /readyz says that none should come")
      .range(0, 3600)
      .unit("seconds")
      .live();
}

void describe_record(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("record", &s.record,
             "append the traffic to this file as a trace for troupe-sim: hashes and lengths, no text");
  schema.add(
      "record_secret", &s.record_secret,
      "file of the secret that its hashes are salted with, the same for all gateways whose records are "
      "to be joined; empty: every run has a salt of its own");
}

}  // namespace

GatewaySettings::GatewaySettings() {
  main_server.port = 30000;
  main_server.connections_max = 8192;
  main_server.keeps_files = true;
  main_server.header_lines_max = kHeaderCountMax - 16;  // for the gateway's own, to the worker
  metrics_server.host.clear();                          // as main_server's
  metrics_server.port = 29000;
  gossip.rules.ledger = true;
}

// The order of the parts is the order in which --help lists the keys of a group.
void describe_settings(GatewaySettings& s, SettingsSchema& schema) {
  describe_listeners(s, schema);
  schema
      .add("worker_urls", &s.worker_urls,
           "the workers, such as http://127.0.0.1:31000,http://127.0.0.1:31001")
      .live();
  schema
      .add("upstreams", &s.upstreams,
           "workers that want more than a URL: url, resolve, api_key_file, api_key_env, api_key_header, "
           "kind, weight, "
           "models, tls")
      .live();
  schema
      .add("routes", &s.routes,
           "models under other names: model and to (an alias), or model and split, weights by model")
      .live();
  describe_tls(s, schema);
  describe_sharing(s, schema);
  describe_handover(s, schema);
  describe_pins(s, schema);
  describe_personas(s, schema);
  describe_http_bodies(schema, s.main_server, kHttpLimits);
  describe_http_timeouts(schema, s.main_server, kHttpLimits);
  describe_http_head(schema, s.main_server, kHttpLimits);
  describe(schema, s.proxy);
  describe_http_connections(schema, s.main_server, kHttpLimits);
  describe_cors(schema, s.main_server, kHttpLimits);
  describe_shutdown(s, schema);
  describe_access(s, schema);
  describe(schema, s.proxy.accounts);
  describe(schema, s.proxy.moderation);
  describe_record(s, schema);
  describe(schema, s.telemetry);
  schema.add_enum("log_level", &s.log_level, kLogLevelNames, "least severe lines logged");
  describe(schema, s.prober);
  describe(schema, s.fleet);
  describe(schema, s.admission_queue.room);
  describe(schema, s.admission_queue.admission);
}

namespace {

StatusOr<std::vector<Endpoint>> parse_urls(const char* key, const std::vector<std::string>& urls) {
  std::vector<Endpoint> endpoints;
  std::set<std::string> seen;
  for (size_t i = 0; i < urls.size(); ++i) {
    auto endpoint = Endpoint::parse(urls[i]);
    if (!endpoint.ok()) return annotate(endpoint.status(), absl::StrCat(key, "[", i, "]"));
    if (!seen.insert(endpoint->authority()).second) {
      return invalid_argument(absl::StrCat(key, "[", i, "]: ", urls[i], " is there twice; list each once"));
    }
    endpoints.push_back(*std::move(endpoint));
  }
  return endpoints;
}

void make_listeners(GatewayConfig& config) {
  // A request that the HTTP layer refuses was never routed; its answer says so like every other.
  config.main_server.refusal_headers.emplace_back("x-route-decision",
                                                  "set=-;node=-;branch=-;attempt=0;expect=0;epoch=0");
  if (config.metrics_server.host.empty()) config.metrics_server.host = config.main_server.host;
  // /admin/explain takes whole bodies, and other gateways send theirs.
  config.metrics_server.body_bytes_max = std::max(config.main_server.body_bytes_max, kGossipBytesMax);
  config.metrics_server.connections_max = 256;
}

void make_router(const GatewaySettings& s, GatewayConfig& config) {
  route::settle_route(config.router);
  route::AffinityOptions& affinity = config.router.affinity;
  affinity.gateways = std::max(s.gossip.rules.gateways, static_cast<int64_t>(s.gossip_peers.size()) + 1);
  affinity.peer_ledger = s.gossip.rules.ledger && (!s.gossip_peers.empty() || !s.state.advertise_url.empty());
}

// Checks the URL by which gateways find each other in etcd.
Status make_found_peers(const GatewaySettings& s, GatewayConfig& config) {
  const std::string& url = s.state.advertise_url;
  config.gossip.finds = !url.empty();
  if (url.empty()) return absl::OkStatus();
  const auto refuse = [&](std::string_view why) {
    return invalid_argument(absl::StrCat("gossip.advertise_url: ", url, ": ", to_absl(why)));
  };
  if (s.state_store != "etcd") return refuse("is of use with state: etcd only; else list gossip.peers");
  const auto endpoint = Endpoint::parse(url);
  if (!endpoint.ok()) return annotate(endpoint.status(), "gossip.advertise_url");
  if (endpoint->tls != s.metrics_tls)
    return refuse(s.metrics_tls ? "must be https://, for metrics_tls is on"
                                : "must be http://, for metrics_tls is off");
  return absl::OkStatus();
}

// REQUIRES: `config` has workers and router.
Status make_state(const GatewaySettings& s, GatewayConfig& config) {
  if (const Status prefix = check_state_prefix(s.state.prefix); !prefix.ok())
    return annotate(prefix, "etcd_prefix");
  const bool shared = s.state_store == "etcd";
  if (shared && !s.pins.file.empty())
    return invalid_argument("pins.file: is of use without state: etcd only, which keeps the pins");
  if (shared && !s.personas.file.empty())
    return invalid_argument("personas.file: is of use without state: etcd only, which keeps the personas");
  if (shared == s.etcd_endpoints.empty()) {
    return invalid_argument(
        shared ? "etcd_endpoints: state: etcd needs at least one, such as http://127.0.0.1:2379"
               : "etcd_endpoints: is of use with state: etcd only");
  }
  TROUPE_ASSIGN_OR_RETURN(config.state.etcd, EtcdOptions::of(s.etcd_endpoints, s.state.lease_ttl));
  config.state.plan_tick = config.router.planner.tick;
  config.state.gateways = config.router.affinity.gateways;
  for (const Upstream& worker : config.fleet.workers) config.state.workers.push_back(worker.id());
  config.router.shared_table = shared;
  return make_found_peers(s, config);
}

Status make_tls(const GatewaySettings& s, GatewayConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(config.tls.listener, make_tls_listener(s.tls, "tls"));
  TROUPE_ASSIGN_OR_RETURN(config.tls.upstream->context,
                          TlsContext::for_client(s.upstream_tls, "upstream_tls"));
  TROUPE_ASSIGN_OR_RETURN(config.tls.etcd->context, TlsContext::for_client(s.etcd_tls, "etcd_tls"));
  if (s.metrics_tls && config.tls.listener == nullptr)
    return invalid_argument("metrics_tls: needs tls.certificate and tls.private_key");
  config.main_server.tls = config.tls.listener;
  if (s.metrics_tls) config.metrics_server.tls = config.tls.listener;
  config.fleet.client.tls = config.tls.upstream;
  config.gossip.tls = config.tls.upstream;
  config.state.etcd.tls = config.tls.etcd;
  return absl::OkStatus();
}

// Copies the values that one part takes from another.
void make_parts(GatewayConfig& config) {
  config.migrator.enabled = config.migrator.text_bytes > 0;
  // These modes read the residency events of the nodes.
  const route::Mode mode = config.router.affinity.mode;
  config.residency.enabled = mode == route::Mode::kExact || mode == route::Mode::kStrict;
  config.fleet.set_loads_half_life = config.router.planner.half_life;
  config.fleet.sets_max = config.router.memory.sets_max;
  config.proxy.api.body_bytes_max = config.main_server.body_bytes_max;
  config.proxy.cors_origins = config.main_server.cors_origins;
}

Status make_record(const GatewaySettings& s, GatewayConfig& config) {
  if (s.record_secret.empty()) return absl::OkStatus();
  const auto secret = read_secret(s.record_secret);
  if (!secret.ok()) return annotate(secret.status(), "record_secret");
  config.record_salt = record_salt(*secret);
  return absl::OkStatus();
}

}  // namespace

StatusOr<GatewayConfig> make_config(const GatewaySettings& s) {
  GatewayConfig config;
  static_cast<GatewayParts&>(config) = s;
  if (s.worker_urls.empty() && s.upstreams.empty() && s.state_store == "memory") {
    return invalid_argument("worker_urls: at least one is needed, such as http://127.0.0.1:31000");
  }
  TROUPE_ASSIGN_OR_RETURN(config.fleet.workers, make_upstreams(s));
  std::copy_if(config.fleet.workers.begin(), config.fleet.workers.end(),
               std::back_inserter(config.fleet.names),
               [](const Upstream& upstream) { return upstream.each; });
  std::erase_if(config.fleet.workers, [](const Upstream& upstream) { return upstream.each; });
  if (config.fleet.workers.size() > config.fleet.nodes_max) {
    return invalid_argument(absl::StrCat("worker_urls: ", config.fleet.workers.size(), " workers, and ",
                                         config.fleet.nodes_max, " at most are followed"));
  }
  TROUPE_ASSIGN_OR_RETURN(config.gossip.peers, parse_urls("gossip.peers", s.gossip_peers));
  make_router(s, config);
  TROUPE_RETURN_IF_ERROR(make_state(s, config));
  TROUPE_RETURN_IF_ERROR(make_tls(s, config));
  TROUPE_RETURN_IF_ERROR(check(config.admission_queue.room));
  TROUPE_ASSIGN_OR_RETURN(config.telemetry, make_telemetry(s.telemetry));
  TROUPE_RETURN_IF_ERROR(normalize_origins(config.main_server.cors_origins));
  make_listeners(config);
  make_parts(config);
  TROUPE_ASSIGN_OR_RETURN(config.proxy.routes, make_routes(s));
  TROUPE_RETURN_IF_ERROR(prepare(config.proxy.moderation));
  config.proxy.names_users = !s.api_keys.empty() || s.proxy.accounts.end_user.any() ||
                             s.telemetry.options.usage.enabled() || s.proxy.moderation.enabled();
  TROUPE_RETURN_IF_ERROR(make_record(s, config));
  TROUPE_RETURN_IF_ERROR(make_access(s, config));
  return config;
}

Status check_files(const GatewayConfig& config) {
  if (!config.pins.file.empty())
    TROUPE_RETURN_IF_ERROR(PinFile::check(config.pins.file, config.pins.text_bytes));
  if (!config.personas.file.empty()) TROUPE_RETURN_IF_ERROR(PersonaFile::check(config.personas.file));
  if (!config.record.empty()) TROUPE_RETURN_IF_ERROR(AppendLog::check("record", config.record));
  if (!config.telemetry.usage.file.empty())
    TROUPE_RETURN_IF_ERROR(AppendLog::check("usage.file", config.telemetry.usage.file));
  const std::string& access_log = config.telemetry.access_log;
  const bool is_file = access_log != kAccessLogOff && access_log != kAccessLogStderr;
  return is_file ? AppendLog::check("access_log", access_log) : absl::OkStatus();
}

// A client's connection and its worker's; a probe and the residency of every worker, a message to every
// gateway; and what the process itself holds open.
size_t files_needed(const GatewayConfig& config) {
  const size_t workers = config.fleet.workers.size() + config.fleet.names.size() * route::NameAddresses::kMax;
  const size_t others = workers * 2 + config.gossip.peers.size();
  return config.main_server.connections_max * 2 + others + 64;
}

}  // namespace troupe
