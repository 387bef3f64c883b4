#include "gateway/config.h"

namespace troupe {

void describe_state(GatewaySettings& s, SettingsSchema& schema) {
  schema.add("state", &s.state, "where gateways share workers and table; memory: nowhere")
      .choices({"memory", "etcd"});
  schema.add("etcd_endpoints", &s.etcd_endpoints,
             "etcd's members, such as http://127.0.0.1:2379,http://127.0.0.1:3379");
  schema.add("etcd_prefix", &s.etcd_prefix, "what the keys there begin with");
  schema.add("etcd_lease_ttl_secs", &s.etcd_lease_ttl_secs, "a gateway that is silent for this long is gone")
      .range(2, 3600)
      .unit("seconds");
}

namespace {

// Other gateways find this one in etcd, and it them.
Status make_found_peers(const GatewaySettings& s, GatewayConfig& config) {
  const std::string& url = s.gossip.advertise_url;
  config.gossip.finds = !url.empty();
  config.state.advertise_url = url;
  if (url.empty()) return absl::OkStatus();
  const auto refuse = [&](std::string_view why) {
    return invalid_argument(absl::StrCat("gossip.advertise_url: ", url, ": ", to_absl(why)));
  };
  if (s.state != "etcd") return refuse("is of use with state: etcd only; else list gossip.peers");
  const auto endpoint = Endpoint::parse(url);
  if (!endpoint.ok()) return annotate(endpoint.status(), "gossip.advertise_url");
  if (endpoint->tls != s.metrics_tls)
    return refuse(s.metrics_tls ? "must be https://, for metrics_tls is on"
                                : "must be http://, for metrics_tls is off");
  return absl::OkStatus();
}

}  // namespace

Status make_state(const GatewaySettings& s, GatewayConfig& config) {
  if (const Status prefix = check_state_prefix(s.etcd_prefix); !prefix.ok())
    return annotate(prefix, "etcd_prefix");
  const bool shared = s.state == "etcd";
  if (shared == s.etcd_endpoints.empty()) {
    return invalid_argument(
        shared ? "etcd_endpoints: state: etcd needs at least one, such as http://127.0.0.1:2379"
               : "etcd_endpoints: is of use with state: etcd only");
  }
  config.state.prefix = s.etcd_prefix;
  config.state.lease_ttl = std::chrono::seconds(s.etcd_lease_ttl_secs);
  TROUPE_ASSIGN_OR_RETURN(config.state.etcd, EtcdOptions::of(s.etcd_endpoints, config.state.lease_ttl));
  config.state.plan_tick = config.router.planner.tick;
  config.state.gateways = config.router.affinity.gateways;
  config.state.workers = config.fleet.workers;
  config.router.shared_table = shared;
  return make_found_peers(s, config);
}

}  // namespace troupe
