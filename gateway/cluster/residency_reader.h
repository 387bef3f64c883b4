#pragma once

// Subscribes to every worker's GET /v1/residency, so that the router knows what nodes really hold instead of
// guessing from its own placements.
//
//   no stream ──connect──▶ snapshot ──▶ in step with the worker ──▶ changes …
//       ▲                                      │
//       └── pause ◀── a gap; the stream ends or falls silent; the worker dies or is removed
//
// A worker without a stream counts as in gossip mode. One without the endpoint (404: a vLLM behind us) is not
// asked again until it has been dead, as another program may come back. Pauses double from retry_min to
// retry_max while attempts fail; after a gap the pause is the shortest.

#include <absl/container/flat_hash_set.h>

#include <map>
#include <memory>
#include <vector>

#include "common/api/residency.h"
#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/task_group.h"
#include "common/net/wakeable_timer.h"
#include "gateway/cluster/fleet.h"

namespace troupe {

struct ResidencyReaderOptions {
  bool enabled = true;
  Duration retry_min = std::chrono::milliseconds(100);
  Duration retry_max = std::chrono::seconds(5);
  Duration silence_max = std::chrono::seconds(10);  // workers send something every two seconds
};

class ResidencyReader {
 public:
  struct Parts {
    Executor executor;
    Fleet& fleet;
    route::Router& router;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  ResidencyReader(const ResidencyReaderOptions& options, const Parts& parts);
  ~ResidencyReader();
  ResidencyReader(const ResidencyReader&) = delete;
  ResidencyReader& operator=(const ResidencyReader&) = delete;

  // Starts one endless task and one per stream in `group`: cancel the group to stop them.
  void start(TaskGroup& group);

  // Pinned sets and the nodes that report them, as of when their streams were last in step.
  std::map<Hash128, std::vector<route::NodeIndex>> pinned() const;

 private:
  struct Stream;
  class Reading;
  Task<void> supervise(TaskGroup& group);
  // The time until which this worker needs no action, if nothing happens.
  TimePoint look_after(route::NodeIndex node, TaskGroup& group);
  void know_worker(route::NodeIndex node, Stream& stream);
  Task<void> read(route::NodeIndex node);
  Task<void> read_events(route::NodeIndex node, ClientAnswer& answer);
  // False: the stream must be closed.
  bool apply(route::NodeIndex node, std::string_view name, std::string_view data);
  static void note_pins(const ResidencyEvent& event, absl::flat_hash_set<Hash128>& pinned);
  bool in_step(route::NodeIndex node) const { return router_.known().exact->feeds.in_step(node); }

  const ResidencyReaderOptions options_;
  WakeableTimer look_again_;
  Fleet& fleet_;
  route::Router& router_;
  Metrics& metrics_;
  const Clock& clock_;
  const Logger& log_;
  Counter& events_;
  Counter& gaps_;
  Counter& malformed_;
  std::vector<std::unique_ptr<Stream>> streams_;  // by node
};

}  // namespace troupe
