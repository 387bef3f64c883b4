#pragma once

// Probes every worker, every interval and each on its own: readiness, served models, load. A worker of ours
// has /readyz and /v1/load; another OpenAI-like server may have /health or nothing but /v1/models: the first
// that exists is used. A worker just seen to fail is asked again at once. A gateway is no worker: it is
// recognised by its x-route-decision, and never gets ready.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/time.h"
#include "common/net/task.h"
#include "common/net/task_group.h"
#include "gateway/cluster/fleet.h"
#include "gateway/route/fleet/probe_schedule.h"

namespace troupe {

class SettingsSchema;

struct ProberOptions : route::ProbeOptions {
  size_t body_bytes_max = 1u << 20;
};
// Describes probe.interval_ms, .timeout_ms. `options` must outlive the schema.
void describe(SettingsSchema& schema, ProberOptions& options);

class Prober {
 public:
  Prober(Executor executor, Fleet& fleet, const Clock& clock, const ProberOptions& options);
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  void change(const ProberOptions& options) { options_ = options; }
  // Starts one task per worker in `group`, which lasts as long as the worker is a member; later members get
  // one, too. Cancel the group to stop them.
  void start(TaskGroup& group);

 private:
  struct Target;
  void begin(route::NodeIndex node);
  Task<void> watch(Target& target);
  Task<void> probe(Target& target);
  Task<bool> ask_ready(Target& target);
  Task<bool> ask_models(Target& target);
  Task<void> ask_load(Target& target);
  Task<void> ask_metrics(Target& target);
  // Status and body; status 0: no answer.
  struct Reply {
    int status = 0;
    bool local = false;  // not asked, for want of a local resource
    std::string body;
    std::string why;  // for the log, should it be no good answer
    bool gateway = false;
  };
  static StatusOr<std::vector<ModelCard>> models_in(const Upstream& upstream, const Reply& reply);
  Task<Reply> get(Target& target, std::string_view path);  // `path` outlives the call

  Executor executor_;
  Fleet& fleet_;
  const Clock& clock_;
  ProberOptions options_;
  TaskGroup* group_ = nullptr;
  std::vector<std::unique_ptr<Target>> targets_;  // by node
};

}  // namespace troupe
