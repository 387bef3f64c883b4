#pragma once

// The worker's HTTP server: OpenAI's endpoints (answered by Generator), and liveness, readiness, metrics,
// load and residency for operators and gateways. One listener, one io_context thread.

#include <memory>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/net/http_server.h"
#include "worker/engine/engine.h"
#include "worker/http/generator.h"
#include "worker/input/prompt_pipeline.h"
#include "worker/sim_device/fault_injector.h"

namespace troupe {

class WorkerServer {
 public:
  struct Options {
    HttpServerOptions http;
    Generator::Options generator;
    double max_pinned_share = 0.25;     // of the KV memory
    bool hand_on_conversations = true;  // GET /v1/conversations
    Duration notice{};                  // see drain()
  };
  // The server's dependencies; all outlive the server. REQUIRES: `engine` is started.
  struct Parts {
    asio::io_context& io;
    const ServedModel& model;
    Engine& engine;
    Metrics& metrics;
    const Logger& log;
    SimFaults* faults = nullptr;  // of a worker without a model: set by POST /sim/faults
  };
  WorkerServer(const Parts& parts, const Options& options);
  ~WorkerServer();  // REQUIRES: never started, or drained

  // All that it answers.
  static std::vector<HttpRoute> routes();

  Status listen();  // binds; the error names host and port
  uint16_t port() const;
  void start();  // accepts connections and reports ready
  // Applies to connections accepted from here on.
  void use(std::shared_ptr<const TlsContext> tls);

  // Steps: (1) /readyz turns 503 and says for how long requests are still accepted, so that gateways can move
  // the cached KV ahead of its requests (Options::notice; less if no requests arrive). (2) New generation
  // requests get 503 and a closed connection; running ones continue until `grace` from the beginning is over.
  // (3) The engine stops, which ends what is left with an error of its own, so that no stream just breaks
  // off. Returns true if no request was cut off.
  Task<bool> drain(Duration grace);
  // Ends a drain's grace period at once.
  void skip_grace_period();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
