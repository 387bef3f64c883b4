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
  return absl::OkStatus();
}

}  // namespace troupe
