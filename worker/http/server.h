#pragma once

// The worker's HTTP face: OpenAI's endpoints (answered by Generator), and what operators and gateways ask of
// a worker: liveness, readiness, metrics, load, residency. One listener, one io_context thread.

#include <memory>
#include <string>

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
  // What the server stands on; all of it outlives the server. `engine` is started.
  struct Parts {
    asio::io_context& io;
    const ServedModel& model;
    Engine& engine;
    Metrics& metrics;
    const Logger& log;
    SimFaults* faults = nullptr;  // of a worker without a model: what POST /sim/faults sets
  };
  WorkerServer(const Parts& parts, const Options& options);
  ~WorkerServer();  // REQUIRES: never started, or drained

  Status listen();  // binds; the error names host and port
  uint16_t port() const;
  void start();  // accepts, and is ready
  // For connections accepted from here on.
  void use(std::shared_ptr<const TlsContext> tls);

  // Steps: /readyz turns 503 and tells for how long requests are taken still, so that gateways can move what
  // is cached here before its requests (Options::notice; less where nobody asks). Then new generation
  // requests are refused with 503 and a closed connection; running ones go on until `grace` from the
  // beginning is over; what is left then is ended by the engine's stop with an error of its own, so that no
  // stream just breaks off. The engine is stopped afterwards. True when nothing had to be cut.
  Task<bool> drain(Duration grace);
  // Ends a drain's grace at once.
  void hurry();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
