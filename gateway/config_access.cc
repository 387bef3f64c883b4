// Access: keys of clients and operators, the fleet's own secrets, and what is open where there are none.

#include "absl/strings/str_cat.h"
#include "common/core/host_scope.h"
#include "gateway/access/api_keys.h"
#include "gateway/access/secret.h"
#include "gateway/config.h"

namespace troupe {

namespace {

Status check_keys(const GatewaySettings& s, GatewayConfig& config) {
  if (s.api_keys.empty()) return absl::OkStatus();
  const auto keys = read_api_keys(s.api_keys);
  if (!keys.ok()) return annotate(keys.status(), "api_keys");
  std::string secret;
  if (!s.tenant_secret.empty()) {
    auto read = read_secret(s.tenant_secret);
    if (!read.ok()) return annotate(read.status(), "tenant_secret");
    secret = *std::move(read);
    config.user_salt = secret;
  }
  return annotate(check_tenants(*keys, secret), "api_keys");
}

// A port and a scheme are no part of what is compared with the Host header's name.
Status check_hosts(const std::vector<std::string>& hosts) {
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  for (size_t i = 0; i < hosts.size(); ++i) {
    const bool is_name = !hosts[i].empty() && hosts[i].find_first_not_of(kOfNames) == std::string::npos;
    if (!is_name && !is_address(hosts[i]))
      return invalid_argument(absl::StrCat("admin.hosts[", i, "]: '", hosts[i],
                                           "' must be a name alone, such as gateway.example.com: no scheme, "
                                           "port or '*'"));
  }
  return absl::OkStatus();
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

void describe_access(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("api_keys", &s.api_keys,
             "file of the keys that may ask, and their limits; read again on SIGHUP. Empty: anybody may");
  schema.add("tenant_secret", &s.tenant_secret,
             "file of the secret that keeps tenants' KV caches apart; needed where keys name tenants");
  schema
      .add(
          "admin.hosts", &s.admin_hosts,
          "names by which /admin may be asked, beside addresses and names of a local network: a page that an "
          "operator's browser shows has none of them")
      .live();
  schema
      .add("admin.worker_urls_allowed", &s.worker_urls_allowed,
           "workers that may be added at run time: globs of host:port, networks such as 10.0.0.0/8; none: "
           "those "
           "of private networks")
      .live();
  schema.add("gossip.secret", &s.gossip_secret,
             "file of the secret by which gateways know each other's messages; empty: all are taken");
}

Status make_access(const GatewaySettings& s, GatewayConfig& config) {
  config.metrics_demands_certificates = s.metrics_tls && !s.tls.ca.empty();
  TROUPE_RETURN_IF_ERROR(check_keys(s, config));
  TROUPE_RETURN_IF_ERROR(check_hosts(s.admin_hosts));
  auto addable = WorkerUrlRules::parse(s.worker_urls_allowed);
  if (!addable.ok()) return annotate(addable.status(), "admin.worker_urls_allowed");
  config.workers_addable = *std::move(addable);
  for (const auto* known : {&config.fleet.workers, &config.fleet.names}) {
    for (const Upstream& upstream : *known) config.workers_addable.allow(upstream.endpoint.authority());
  }
  if (s.gossip_secret.empty()) return absl::OkStatus();
  const auto secret = read_secret(s.gossip_secret);
  if (!secret.ok()) return annotate(secret.status(), "gossip.secret");
  config.fleet.name_salt = chain_hash(Hash128{}, *secret);  // gateways that share it name a worker alike
  config.gossip.seal =
      GossipAuth([secret = *secret](std::string_view bytes) { return keyed_hash(secret, bytes); });
  return absl::OkStatus();
}

ExposedEndpoints exposed_endpoints(const GatewayConfig& config) {
  ExposedEndpoints doors;
  if (is_loopback(config.metrics_server.host) || config.metrics_demands_certificates) return doors;
  const auto add = [&doors](const char* what, const char* key) {
    absl::StrAppend(&doors.open, doors.open.empty() ? "" : "; ", what);
    absl::StrAppend(&doors.close, key, ", ");
  };
  if (config.api_keys.empty())
    add("anybody may change the workers (/admin)", "api_keys with a key marked admin: true");
  if (!config.gossip.seal.is_needed())
    add("anybody may tell this gateway what others do (/admin/gossip)", "gossip.secret");
  if (!doors.open.empty())
    absl::StrAppend(&doors.close,
                    "or for all of it: metrics_host: 127.0.0.1, or metrics_tls with tls.client_ca");
  return doors;
}

}  // namespace troupe
