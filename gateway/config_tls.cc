#include "gateway/config.h"

namespace troupe {

void describe_tls(GatewaySettings& s, SettingsSchema& schema) {
  describe_tls_listener(schema, "tls", s.tls, TlsReload::kOnSighup);
  schema.add("metrics_tls", &s.metrics_tls, "the metrics port speaks TLS, too, as `tls` says").live();
  describe_tls_client(schema, "upstream_tls", "workers and other gateways", s.upstream_tls,
                      TlsReload::kOnSighup);
  describe_tls_client(schema, "etcd_tls", "etcd's members", s.etcd_tls, TlsReload::kOnSighup);
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

}  // namespace troupe
