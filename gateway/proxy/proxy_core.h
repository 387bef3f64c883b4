#pragma once

// State that the parts of a proxy share: the gateway's parts that it was built over, and its options, which a
// reload changes for all of them at once. On the event loop's thread.

#include "common/api/api.h"
#include "common/core/log.h"
#include "common/core/time.h"
#include "gateway/cluster/fleet.h"
#include "gateway/cluster/persona_keeper.h"
#include "gateway/cluster/prefix_text_cache.h"
#include "gateway/persona/registry.h"
#include "gateway/proxy/accounts.h"
#include "gateway/proxy/proxy_settings.h"
#include "gateway/route/placement/pin_registry.h"
#include "gateway/route/request/request_flow.h"
#include "gateway/route/request/retry.h"
#include "gateway/route/router.h"
#include "gateway/telemetry/instruments.h"
#include "gateway/telemetry/request_observers.h"
#include "gateway/telemetry/traffic_recorder.h"
#include "gateway/telemetry/usage_export.h"

namespace troupe {

// The fleet, as a RequestFlow sees its nodes.
class FleetSignals final : public route::NodeSignals {
 public:
  explicit FleetSignals(Fleet& fleet) : fleet_(fleet) {}
  void on_event(route::NodeIndex node, route::HealthEvent event, TimePoint) override {
    fleet_.on_event(node, event);
  }
  route::NodeStatus node_status(route::NodeIndex node) const override {
    return {.is_troupe_worker = fleet_.is_troupe_worker(node),
            .heartbeats = fleet_.heartbeats(node),
            .suspect = fleet_.state(node) == route::NodeState::kSuspect,
            .dead = fleet_.known_dead(node)};
  }
  void saw_heartbeat(route::NodeIndex node) override { fleet_.on_heartbeat(node); }
  void probe(route::NodeIndex node, TimePoint) override { fleet_.probe_now(node); }

 private:
  Fleet& fleet_;
};

// Both null: personas have no names here.
struct NamedPersonaParts {
  PersonaRegistry* registry = nullptr;
  PersonaKeeper* keeper = nullptr;
};

struct ProxyCore {
  ProxyOptions options;
  Fleet& fleet;
  route::Router& router;
  Instruments& instruments;
  RequestObservers& observers;
  const Clock& clock;
  const Logger& log;

  ApiParser parser{options.api};
  route::RetryBudget retry_budget{options.retry};
  FleetSignals signals{fleet};
  size_t running = 0;                   // requests
  bool draining = false;                // new requests are refused, and their connections closed
  TrafficRecorder* recorder = nullptr;  // null: traffic is not recorded
  route::PinRegistry* pins = nullptr;   // null: pins are not kept here
  bool pins_by_owner = false;  // workers know others' pins that the registry does not: they judge by owner
  PrefixTextCache* texts = nullptr;  // null: texts of personas are not kept
  NamedPersonaParts personas = {};
  Accounts* accounts = nullptr;          // null: there are no limits in windows of time
  ModerationHook* moderation = nullptr;  // null: nothing is judged
  UsageExport* usage = nullptr;          // null: usage is not exported

  // The surroundings in which a request's flow decides.
  route::FlowContext flow_context() { return {router, retry_budget, signals, options}; }
  // Options from now on. What recorder and texts ask of the parser stays.
  void change(const ProxyOptions& changed) {
    const auto mark_salt = options.mark_salt;
    const bool keep_parsed = options.keep_parsed;
    options = changed;
    options.mark_salt = mark_salt;
    options.keep_parsed = keep_parsed;
    parser = ApiParser(options.api);
    retry_budget.change(options.retry);
    if (accounts != nullptr) accounts->change(options.accounts);
  }
};

}  // namespace troupe
