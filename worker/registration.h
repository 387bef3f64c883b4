#pragma once

// A worker's place in etcd, where gateways find it: there as long as the worker takes requests and reaches
// etcd. While etcd is away nothing is lost but the news; when its lease has run out meanwhile, the worker
// registers anew. All calls on the io_context's thread.

#include <memory>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/etcd/etcd.h"
#include "common/etcd/keys.h"
#include "common/net/task_group.h"
#include "worker/registration_options.h"

namespace troupe {

struct WorkerSettings;

class Registration {
 public:
  using Options = RegistrationOptions;
  // All of it outlives the registration.
  struct Parts {
    Executor executor;
    Metrics& metrics;
    const Logger& log;
    const Clock& clock;
    std::shared_ptr<const TlsSource> etcd_tls;  // for members with https
  };
  // REQUIRES: a url that Endpoint::parse() takes.
  Registration(const Options& options, const WorkerRecord& record, const Parts& parts);
  ~Registration();  // REQUIRES: never started, or ended

  void start();      // begins to take its place, and keeps it
  Task<void> end();  // gives it up; takes no longer than etcd's members are tried

 private:
  Task<void> keep();
  Task<Status> keep_once();

  const Executor executor_;
  const Logger& log_;
  EtcdClient etcd_;
  EtcdLease lease_;
  etcd::Put place_;  // put under its lease; 0: to be put
  Gauge& registered_;
  TaskGroup tasks_;
};

// Null where no etcd is named. REQUIRES: resolved settings. `port`: that the server listens on; `epoch`: of
// its cache.
std::unique_ptr<Registration> make_registration(const WorkerSettings& settings, uint16_t port,
                                                const std::string& epoch, const Registration::Parts& parts);

}  // namespace troupe
