#include "worker/certificates.h"

namespace troupe {

Status Certificates::read() {
  TROUPE_ASSIGN_OR_RETURN(auto listener, make_tls_listener(settings_.tls, "tls"));
  TROUPE_ASSIGN_OR_RETURN(etcd_->context, TlsContext::for_client(settings_.etcd_tls, "etcd_tls"));
  listener_ = std::move(listener);
  export_tls_expiry(metrics_, "troupe_worker", "listener", listener_.get());
  export_tls_expiry(metrics_, "troupe_worker", "etcd", etcd_->context.get());
  return absl::OkStatus();
}

void Certificates::renew(WorkerServer& server) {
  if (const Status status = read(); !status.ok()) {
    log_.error("not_reloaded", {{"why", to_std(status.message())}});
    return;
  }
  server.use(listener_);
  log_.info("reloaded", {{"changed", "certificates"}});
}

}  // namespace troupe
