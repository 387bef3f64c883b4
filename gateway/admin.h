#pragma once

// The metrics port: /metrics, the probes, what an operator asks and changes (/admin), and what other gateways
// tell. On a listener of its own, so that a flood of requests doesn't starve the probes and a public main
// port doesn't show the fleet.

#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/http_server.h"
#include "gateway/proxy.h"
#include "gateway/route/router.h"
#include "gateway/upstream/fleet.h"
#include "gateway/upstream/gossip.h"
#include "gateway/upstream/residency_reader.h"

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
    const Clock& clock;
  };
  explicit Admin(const Parts& parts) : parts_(parts) {}
  Task<void> handle(Exchange& exchange);

 private:
  struct Page {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::string allow;  // of a 405
  };
  Page page(const HttpRequest& request);
  Page read(const HttpRequest& request);
  static Page failed(const ApiError& error);
  Page explain(const HttpRequest& request);
  Page change_workers(const HttpRequest& request);
  Page drain_worker(std::string_view id);
  Page gossip(const HttpRequest& request);
  std::string table_json() const;

  Parts parts_;
};

}  // namespace troupe
