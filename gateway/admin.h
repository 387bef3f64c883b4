#pragma once

// The metrics port: /metrics, the probes, the operator's queries and changes (/admin), and gossip between
// gateways. On a listener of its own, so that a flood of requests doesn't starve the probes and a public main
// port doesn't show the fleet.
//
// With API keys only a key that is marked `admin` may change the fleet, or have requests explained; so may a
// client with a certificate where this port demands one. A web page may not, nor read /admin under a foreign
// name (common/net/cors.h). Reading is open to all that reach the port: /metrics
// shows as much. Gossip has a seal of its own (cluster/gossip_auth.h).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/http_server.h"
#include "gateway/access/api_keys.h"
#include "gateway/access/worker_url_rules.h"
#include "gateway/cluster/fleet.h"
#include "gateway/cluster/gossip.h"
#include "gateway/cluster/residency_reader.h"
#include "gateway/persona/registry.h"
#include "gateway/proxy/proxy.h"
#include "gateway/route/router.h"
#include "gateway/telemetry/usage_export.h"

namespace troupe {

class Admin {
 public:
  struct Parts {
    Proxy& proxy;
    Fleet& fleet;
    const route::Router& router;
    const Metrics& metrics;
    Gossip& gossip;
    const ResidencyReader& residency;
    const PersonaRegistry& personas;
    const Clock& clock;
  };
  explicit Admin(const Parts& parts) : parts_(parts) {}
  // Changes need one of these keys, marked `admin`, from now on. REQUIRES: they outlive this.
  void ask_for(const ApiKeys& keys) { keys_ = &keys; }
  // Every client of this port has shown a certificate, which is enough.
  void demands_certificates(bool demands) { certified_ = demands; }
  // Names under which this port may be asked, beside those that no page from elsewhere can have.
  void answer_to(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }
  // GET /admin/usage shows these sums from now on. REQUIRES: they outlive this.
  void show_usage(UsageExport& usage) { usage_ = &usage; }
  // The workers that may be added.
  void add_only(WorkerUrlRules rules) { addable_ = std::move(rules); }

  // All that this port answers.
  static std::vector<HttpRoute> routes();

  Task<void> handle(Exchange& exchange);
  // See HttpServerOptions.
  bool wants_body(const HttpRequest& head) const;

 private:
  struct Page {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::string allow;  // for a 405
    std::string seal;   // for an answer to a gateway's message
  };
  // The error of a request that is not allowed; none: it is allowed.
  std::optional<ApiError> refusal_of(const HttpRequest& request) const;
  Page page(const HttpRequest& request);
  Page read(const HttpRequest& request);
  static Page failed(const ApiError& error);
  Page explain(const HttpRequest& request);
  Page change_workers(const HttpRequest& request);
  Page drain_worker(std::string_view id);
  Page gossip(const HttpRequest& request);
  std::string table_json() const;
  Page usage(const HttpRequest& request);

  Parts parts_;
  const ApiKeys* keys_ = nullptr;  // null: no key is needed
  std::vector<std::string> hosts_;
  WorkerUrlRules addable_;
  UsageExport* usage_ = nullptr;  // null: usage is not summed up
  bool certified_ = false;
};

}  // namespace troupe
