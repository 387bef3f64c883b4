#pragma once

// The workers this gateway knows: for each its connections, its health, its models and its last load report.
// When anything in that changes for routing, a new cluster view goes to the router. All calls on the
// io_context's thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/core/api.h"
#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/http_client.h"
#include "gateway/route/health.h"
#include "gateway/route/router.h"

namespace troupe {

struct FleetOptions {
  std::vector<Endpoint> workers;
  HttpClientOptions client;
  route::HealthOptions health;
  int64_t in_flight_max = 0;  // a worker; 0: no bound
};

class Fleet {
 public:
  struct Parts {
    Executor executor;
    route::Router& router;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  Fleet(const FleetOptions& options, const Parts& parts);

  size_t size() const { return workers_.size(); }
  HttpClient& client(route::NodeIndex node) { return *workers_[node].client; }
  const std::string& id(route::NodeIndex node) const { return workers_[node].id; }
  route::NodeState state(route::NodeIndex node) const { return workers_[node].health.state(); }

  // What probes and requests saw. A change of state makes a new view; death also forgets what the node held.
  void on_event(route::NodeIndex node, route::HealthEvent event);
  void set_models(route::NodeIndex node, std::vector<ModelCard> models);
  // A new epoch means the worker's cache began empty.
  void set_load(route::NodeIndex node, LoadReport report);

  // Everybody has been probed: from here on "no worker" is known, not guessed.
  bool probed() const { return unprobed_ == 0; }
  bool ready() const { return probed() && !router_.view().models().empty(); }
  // Union over the workers that can be routed to, by id.
  std::vector<ModelCard> models() const;
  // GET /admin/workers.
  std::string workers_json() const;

  // Called when a failure asks for a probe at once; set by the prober.
  std::function<void(route::NodeIndex)> on_suspicion;

 private:
  struct Worker {
    std::string id;
    std::string url;
    std::unique_ptr<HttpClient> client;
    route::NodeHealth health;
    std::vector<ModelCard> models;
    std::optional<LoadReport> load;
    Gauge* up = nullptr;
    bool probed = false;
  };
  void publish();

  int64_t in_flight_max_;
  route::Router& router_;
  const Clock& clock_;
  const Logger& log_;
  std::vector<Worker> workers_;
  size_t unprobed_ = 0;
  uint64_t view_epoch_ = 0;
};

}  // namespace troupe
