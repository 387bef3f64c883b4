#pragma once

// Certificates of the worker's connections, its listener's and those to etcd: read at the start and
// again on SIGHUP, whole or not at all, and for new connections. All calls on the io_context's thread.

#include <memory>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/net/tls_settings.h"
#include "worker/config.h"
#include "worker/http/server.h"

namespace troupe {

class Certificates {
 public:
  // All of it outlives this.
  Certificates(const WorkerSettings& settings, Metrics& metrics, const Logger& log)
      : settings_(settings), metrics_(metrics), log_(log) {}

  // Files that are wrong are an error that names setting, file and reason, and change nothing.
  Status read();
  // read(), for connections that `server` accepts from here on; what came of it is in the log.
  void renew(WorkerServer& server);

  const std::shared_ptr<const TlsContext>& listener() const { return listener_; }  // null: plain HTTP
  std::shared_ptr<const TlsSource> etcd() const { return etcd_; }

 private:
  const WorkerSettings& settings_;
  Metrics& metrics_;
  const Logger& log_;
  std::shared_ptr<const TlsContext> listener_;
  const std::shared_ptr<TlsSource> etcd_ = std::make_shared<TlsSource>();
};

}  // namespace troupe
