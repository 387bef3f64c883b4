#pragma once

// The gauges of each worker: whether it may be sent requests, and its state. Members have them, and no one
// else. Not thread-safe.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/metrics.h"
#include "gateway/route/fleet/node_registry.h"

namespace troupe {

class WorkerGauges {
 public:
  // REQUIRES: `metrics` outlives it.
  explicit WorkerGauges(Metrics& metrics) : metrics_(metrics) {}

  void show(std::span<const route::RegisteredNode> nodes, const route::ClusterView& view);
  // Another worker has the slot from now on.
  void take(route::NodeIndex node);

 private:
  struct OfWorker {
    Gauge* up = nullptr;                        // null: it has none
    std::map<std::string_view, Gauge*> states;  // by name
  };
  void give(OfWorker& gauges, const std::string& id);

  Metrics& metrics_;
  std::vector<OfWorker> workers_;  // by slot
};

}  // namespace troupe
