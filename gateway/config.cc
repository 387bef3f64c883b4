#include "gateway/config.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "gateway/access/secret.h"
#include "gateway/telemetry/traffic_recorder.h"

namespace troupe {
namespace {

StatusOr<LogLevel> parse_log_level(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warn") return LogLevel::kWarn;
  if (name == "error") return LogLevel::kError;
  return invalid_argument(absl::StrCat("log_level: '", name, "' is none of debug, info, warn, error"));
}

StatusOr<std::vector<Endpoint>> parse_urls(const char* key, const std::vector<std::string>& urls) {
  std::vector<Endpoint> workers;
  std::set<std::string> seen;
  for (size_t i = 0; i < urls.size(); ++i) {
    auto endpoint = Endpoint::parse(urls[i]);
    if (!endpoint.ok()) return annotate(endpoint.status(), absl::StrCat(key, "[", i, "]"));
    if (!seen.insert(endpoint->authority()).second) {
      return invalid_argument(absl::StrCat(key, "[", i, "]: ", urls[i], " is there twice; list each once"));
    }
    workers.push_back(*std::move(endpoint));
  }
  return workers;
}

void describe_routing(GatewaySettings& s, SettingsSchema& schema) {
  route::describe_policy(schema, s.route);
  route::describe_route(schema, s.route);
  schema.add("route.gateways", &s.gateways, "gateways that share these workers").range(1, 1024);
  schema.add("gossip.peers", &s.gossip.peers,
             "metrics ports of the other gateways, such as http://127.0.0.1:29001");
  schema.add("gossip.advertise_url", &s.gossip.advertise_url,
             "with state: etcd, the URL of this gateway's metrics port: others find it there, and it them");
  schema.add("gossip.interval_ms", &s.gossip.interval_ms, "between two messages to each of them")
      .range(1, 60'000)
      .unit("ms");
  schema.add("gossip.ledger", &s.gossip.ledger,
             "tell the other gateways what is in flight, before the workers' reports do");
  schema.add("retry.attempts_max", &s.retry.attempts_max, "tries a request gets, the first included")
      .range(1, 16)
      .live();
  schema.add("retry.budget_ratio", &s.retry.budget_ratio, "retries every request earns").range(0, 1).live();
  schema.add("retry.budget_per_s", &s.retry.budget_per_s, "retries earned a second besides")
      .range(0, 1e6)
      .live();
  schema.add("retry.budget_max", &s.retry.budget_max, "retries saved up, at most").range(0, 1e6).live();
  schema
      .add("retry.resend_to_foreign", &s.retry.resend_to_foreign,
           "what a worker of another kind may have begun is sent again to the next; x-troupe-retry may say")
      .live();
}

StatusOr<route::RouterOptions> make_router_options(const GatewaySettings& s) {
  route::RouterOptions router;
  TROUPE_RETURN_IF_ERROR(route::apply_route(s.route, router));
  router.affinity.gateways = std::max(s.gateways, static_cast<int64_t>(s.gossip.peers.size()) + 1);
  router.affinity.peer_ledger =
      s.gossip.ledger && (!s.gossip.peers.empty() || !s.gossip.advertise_url.empty());
  return router;
}

void describe_handover(GatewaySettings& s, SettingsSchema& schema) {
  schema
      .add("handover.text_bytes", &s.handover.text_bytes,
           "memory for texts of personas, to have them computed ahead of their requests; 0: never")
      .range(0, 1e12)
      .unit("bytes");
  schema.add("handover.at_once", &s.handover.at_once, "personas computed ahead at once").range(1, 256);
  schema
      .add("handover.deadline_secs", &s.handover.deadline_secs,
           "what of a worker's personas is not computed by then moves all the same")
      .range(1, 3600)
      .unit("seconds")
      .live();
  schema
      .add("handover.ramp_secs", &s.handover.ramp_secs,
           "a worker that joins rises from a tenth of its share to all of it")
      .range(0, 3600)
      .unit("seconds")
      .live();
}

void describe_limits(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("limits.body_bytes", &s.limits.body_bytes, "request body, at most")
      .range(1024, 1e9)
      .unit("bytes")
      .live();
  schema.add("limits.bodies_bytes", &s.limits.bodies_bytes, "of all requests together; more are answered 503")
      .range(1024, 1e12)
      .unit("bytes")
      .live();
  schema.add("limits.header_timeout_ms", &s.limits.header_timeout_ms, "for a whole request head")
      .range(1, 3.6e6)
      .unit("ms")
      .live();
  schema.add("limits.body_timeout_ms", &s.limits.body_timeout_ms, "for a whole request body")
      .range(1, 3.6e6)
      .unit("ms")
      .live();
  schema.add("limits.idle_timeout_ms", &s.limits.idle_timeout_ms, "between two requests of a connection")
      .range(1, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("limits.write_timeout_ms", &s.limits.write_timeout_ms,
           "a client that takes nothing for this long is cut off")
      .range(1, 3.6e6)
      .unit("ms")
      .live();
  schema.add("limits.header_bytes", &s.limits.header_bytes, "request head, at most")
      .range(1024, 1e6)
      .unit("bytes");
  schema.add("limits.requests", &s.limits.requests, "requests at once; more are answered 429")
      .range(1, 1e6)
      .live();
  schema
      .add("limits.tokenize_requests", &s.limits.tokenize_requests,
           "of /tokenize and /detokenize at once; more are answered 429")
      .range(1, 1e6)
      .live();
  schema.add("limits.connections", &s.limits.connections, "client connections at once").range(1, 1e6).live();
  schema
      .add("limits.worker_requests", &s.limits.worker_requests,
           "requests at once a worker is sent before others are preferred; 0: no bound")
      .range(0, 1e6)
      .live();
}

}  // namespace

void describe_settings(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("host", &s.host, "address to listen on");
  schema.add("port", &s.port, "port to listen on").range(0, 65535);
  schema.add("metrics_host", &s.metrics_host, "address for metrics, probes and /admin; empty: as host");
  schema.add("metrics_port", &s.metrics_port, "their port").range(0, 65535);
  schema
      .add("worker_urls", &s.worker_urls,
           "the workers, such as http://127.0.0.1:31000,http://127.0.0.1:31001")
      .live();
  describe_tls(s, schema);
  describe_state(s, schema);
  describe_routing(s, schema);
  describe_handover(s, schema);
  schema
      .add("request_timeout_secs", &s.request_timeout_secs,
           "longest a request may take; x-request-timeout-ms may ask for less")
      .range(1, 86'400)
      .unit("seconds")
      .live();
  schema
      .add("stream_heartbeat_timeout_ms", &s.stream_heartbeat_timeout_ms,
           "a worker whose stream says nothing for this long hangs; another goes on")
      .range(200, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("foreign_worker_silence_timeout_ms", &s.foreign_worker_silence_timeout_ms,
           "a worker of another kind that has sent nothing of an answer for this long is given up; 0: never")
      .range(0, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("foreign_worker_stall_timeout_ms", &s.foreign_worker_stall_timeout_ms,
           "an answer that one has begun and brings nothing more of for this long ends with an error; 0: "
           "never")
      .range(0, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("shutdown_grace_period_secs", &s.shutdown_grace_period_secs,
           "how long running requests may take after SIGTERM")
      .range(0, 86'400)
      .unit("seconds")
      .live();
  schema
      .add("shutdown_notice_secs", &s.shutdown_notice_secs,
           "of that, how long new requests are still taken while /readyz says that none should come")
      .range(0, 3600)
      .unit("seconds")
      .live();
  describe_access(s, schema);
  schema.add("record", &s.record,
             "append the traffic to this file as a trace for troupe-sim: hashes and lengths, no text");
  schema.add(
      "record_secret", &s.record_secret,
      "file of the secret that its hashes are salted with, the same for all gateways whose records are "
      "to be joined; empty: every run has a salt of its own");
  describe_telemetry(s.telemetry, schema);
  schema.add("log_level", &s.log_level, "least severe lines logged")
      .choices({"debug", "info", "warn", "error"});
  schema.add("probe.interval_ms", &s.probe.interval_ms, "between probes of a worker")
      .range(10, 3.6e6)
      .unit("ms")
      .live();
  schema.add("probe.timeout_ms", &s.probe.timeout_ms, "a probe without an answer by then has failed")
      .range(1, 3.6e6)
      .unit("ms")
      .live();
  schema.add("probe.dead_after", &s.probe.dead_after, "failures in a row that make a worker dead")
      .range(1, 1000)
      .live();
  schema.add("probe.alive_after", &s.probe.alive_after, "good probes in a row that bring it back")
      .range(1, 1000)
      .live();
  describe_limits(s, schema);
  describe_admission(s.admission, schema);
  schema.add("upstream.connect_timeout_ms", &s.upstream.connect_timeout_ms, "to connect to a worker")
      .range(1, 600'000)
      .unit("ms");
  schema.add("upstream.idle_connections", &s.upstream.idle_connections, "kept open to each worker")
      .range(0, 65'536);
  schema.add("upstream.idle_timeout_ms", &s.upstream.idle_timeout_ms, "and for how long unused")
      .range(1, 3.6e6)
      .unit("ms");
}

namespace {

void make_listeners(const GatewaySettings& s, GatewayConfig& config) {
  config.main_server.host = s.host;
  config.main_server.port = static_cast<uint16_t>(s.port);
  config.main_server.body_bytes_max = static_cast<size_t>(s.limits.body_bytes);
  config.main_server.header_bytes_max = static_cast<size_t>(s.limits.header_bytes);
  config.main_server.bodies_bytes_max = static_cast<size_t>(s.limits.bodies_bytes);
  config.main_server.header_timeout = std::chrono::milliseconds(s.limits.header_timeout_ms);
  config.main_server.body_timeout = std::chrono::milliseconds(s.limits.body_timeout_ms);
  config.main_server.idle_timeout = std::chrono::milliseconds(s.limits.idle_timeout_ms);
  config.main_server.write_timeout = std::chrono::milliseconds(s.limits.write_timeout_ms);
  config.main_server.connections_max = static_cast<size_t>(s.limits.connections);
  // What the HTTP layer refuses never came to be routed, and says so like every answer.
  config.main_server.refusal_headers.emplace_back("x-route-decision",
                                                  "set=-;node=-;branch=-;attempt=0;expect=0;epoch=0");
  config.metrics_server.host = s.metrics_host.empty() ? s.host : s.metrics_host;
  config.metrics_server.port = static_cast<uint16_t>(s.metrics_port);
  // /admin/explain takes whole bodies, and other gateways send theirs.
  config.metrics_server.body_bytes_max = std::max(config.main_server.body_bytes_max, kGossipBytesMax);
  config.metrics_server.connections_max = 256;
}

}  // namespace

StatusOr<GatewayConfig> make_config(const GatewaySettings& s) {
  GatewayConfig config;
  if (s.worker_urls.empty() && s.state == "memory") {
    return invalid_argument("worker_urls: at least one is needed, such as http://127.0.0.1:31000");
  }
  TROUPE_ASSIGN_OR_RETURN(config.fleet.workers, parse_urls("worker_urls", s.worker_urls));
  if (config.fleet.workers.size() > config.fleet.workers_max) {
    return invalid_argument(absl::StrCat("worker_urls: ", config.fleet.workers.size(), " workers, and ",
                                         config.fleet.workers_max, " at most are followed"));
  }
  TROUPE_ASSIGN_OR_RETURN(config.gossip.peers, parse_urls("gossip.peers", s.gossip.peers));
  TROUPE_ASSIGN_OR_RETURN(config.router, make_router_options(s));
  TROUPE_RETURN_IF_ERROR(make_state(s, config));
  TROUPE_RETURN_IF_ERROR(make_tls(s, config));
  TROUPE_ASSIGN_OR_RETURN(config.log_level, parse_log_level(s.log_level));
  TROUPE_ASSIGN_OR_RETURN(config.admission_queue, make_admission_queue(s.admission));
  TROUPE_RETURN_IF_ERROR(make_telemetry(s, config));

  make_listeners(s, config);

  config.fleet.client.connect_timeout = std::chrono::milliseconds(s.upstream.connect_timeout_ms);
  config.fleet.client.idle_connections_max = static_cast<size_t>(s.upstream.idle_connections);
  config.fleet.client.idle_timeout = std::chrono::milliseconds(s.upstream.idle_timeout_ms);
  config.fleet.health.dead_after = static_cast<int>(s.probe.dead_after);
  config.fleet.health.alive_after = static_cast<int>(s.probe.alive_after);
  config.fleet.in_flight_max = s.limits.worker_requests;
  config.fleet.ramp = std::chrono::seconds(s.handover.ramp_secs);
  config.prefix_text_bytes = static_cast<size_t>(s.handover.text_bytes);
  config.migrator.enabled = s.handover.text_bytes > 0;
  config.migrator.deadline = std::chrono::seconds(s.handover.deadline_secs);
  config.router.moves_at_once = static_cast<size_t>(s.handover.at_once);
  config.prober.interval = std::chrono::milliseconds(s.probe.interval_ms);
  config.prober.timeout = std::chrono::milliseconds(s.probe.timeout_ms);

  // The modes that go by what nodes really hold.
  const route::Mode mode = config.router.affinity.mode;
  config.residency.enabled = mode == route::Mode::kExact || mode == route::Mode::kStrict;
  config.gossip.interval = std::chrono::milliseconds(s.gossip.interval_ms);
  config.gossip.ledger = s.gossip.ledger;
  config.gossip.gateways = s.gateways;
  config.fleet.set_loads_half_life = config.router.planner.half_life;
  config.fleet.sets_max = config.router.memory.sets_max;

  config.proxy.requests_max = static_cast<size_t>(s.limits.requests);
  config.proxy.text_requests_max = static_cast<size_t>(s.limits.tokenize_requests);
  config.proxy.request_timeout = std::chrono::seconds(s.request_timeout_secs);
  config.proxy.silence_max = std::chrono::milliseconds(s.stream_heartbeat_timeout_ms);
  config.proxy.foreign_silence_max = std::chrono::milliseconds(s.foreign_worker_silence_timeout_ms);
  config.proxy.foreign_stall_max = std::chrono::milliseconds(s.foreign_worker_stall_timeout_ms);
  config.proxy.api.body_bytes_max = static_cast<size_t>(s.limits.body_bytes);
  config.proxy.retry.attempts_max = static_cast<int>(s.retry.attempts_max);
  config.proxy.retry.budget_ratio = s.retry.budget_ratio;
  config.proxy.retry.budget_per_s = s.retry.budget_per_s;
  config.proxy.retry.budget_max = s.retry.budget_max;
  config.proxy.resend_to_foreign = s.retry.resend_to_foreign;
  config.record = s.record;
  if (!s.record_secret.empty()) {
    const auto secret = read_secret(s.record_secret);
    if (!secret.ok()) return annotate(secret.status(), "record_secret");
    config.record_salt = record_salt(*secret);
  }
  TROUPE_RETURN_IF_ERROR(make_access(s, config));
  config.grace = std::chrono::seconds(s.shutdown_grace_period_secs);
  config.notice = std::chrono::seconds(s.shutdown_notice_secs);
  return config;
}

// A client's connection and its worker's; a probe and the residency of every worker, a message to every
// gateway; and what the process itself holds open.
size_t files_needed(const GatewayConfig& config) {
  const size_t others = config.fleet.workers.size() * 2 + config.gossip.peers.size();
  return config.main_server.connections_max * 2 + others + 64;
}

}  // namespace troupe
