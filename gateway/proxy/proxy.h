#pragma once

// The gateway's main port, and a request's way through it:
//
//   request_intake    parses, keys, and lets the flow choose
//   access_gate       the client's API key: what it may use, what it is charged
//   admission_stage   waits where all workers of a model are full; then the flow chooses again
//   request_driver    sends it, once per attempt of the flow, and passes the answer on
//   persona_assembly  puts a persona that it names around its messages, within the first phase
//   prefix_endpoint   POST /v1/prefixes goes to all homes of its set instead
//   replies           refusals and failures
//
// Every answer, errors too, carries x-request-id and x-route-decision. A client that disconnects cancels the
// handler, and with it the request at the worker. On the event loop's thread.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/core/time.h"
#include "common/dialects/dialect_exchange.h"
#include "common/net/http_server.h"
#include "gateway/proxy/access_gate.h"
#include "gateway/proxy/admission_queue.h"
#include "gateway/proxy/admission_stage.h"
#include "gateway/proxy/persona_endpoint.h"
#include "gateway/proxy/prefix_endpoint.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/replies.h"
#include "gateway/proxy/request_driver.h"
#include "gateway/proxy/request_intake.h"
#include "gateway/proxy/route_explainer.h"

namespace troupe {

class Proxy {
 public:
  struct Parts {
    Fleet& fleet;
    route::Router& router;
    Instruments& instruments;
    RequestObservers& observers;
    AdmissionQueue& admission_queue;
    Accounts& accounts;
    const Clock& clock;
    const Logger& log;
  };
  Proxy(const ProxyOptions& options, const Parts& parts, uint64_t seed);

  // Each of these holds from now on. REQUIRES: what is passed outlives this.
  void record_to(TrafficRecorder& recorder);  // traffic
  void moderate_by(ModerationHook& hook) { core_.moderation = &hook; }
  void export_to(UsageExport& usage) { core_.usage = &usage; }
  // Clients' pins. `by_owner`: no store has all of them, and workers keep each for its owners.
  void keep_pins(route::PinRegistry& pins, bool by_owner) {
    core_.pins = &pins;
    core_.pins_by_owner = by_owner;
  }
  void keep_personas(PersonaRegistry& personas, PersonaKeeper& keeper) {
    core_.personas = {&personas, &keeper};
  }
  void keep_texts(PrefixTextCache& texts);                             // of personas that are asked for
  void require_keys(const ApiKeys& keys) { gate_.require(keys); }      // of clients
  void change(const ProxyOptions& options) { core_.change(options); }  // limits, time-outs, retries

  Task<void> handle(Exchange& exchange);
  // A request with this head may be let in: its body is worth waiting for.
  bool wants_body(const HttpRequest& head) const;

  // It is not ready any more from now on, so that balancers send it nothing; requests that come all the same
  // are answered.
  void give_notice() { leaving_ = true; }
  // New requests are refused from now on (503, Connection: close), running ones go on, and those that wait do
  // so for at most half of `grace`, which leaves time for their answers.
  void start_drain(Duration grace);
  bool draining() const { return core_.draining; }
  bool healthy() const { return !leaving_ && core_.fleet.probed() && !core_.router.view().models().empty(); }
  size_t requests_running() const { return core_.running; }

  // GET /health: status and body.
  std::pair<int, std::string> health() const;
  // Where this request would go. JSON, or the error that its body would get.
  ApiResult<std::string> explain(const HttpRequest& request) { return explainer_.explain(request); }
  // The client's id, or a new one.
  std::string request_id(const HttpRequest& request) { return replies_.request_id(request); }

 private:
  Task<void> handle_own(Exchange& exchange);
  // Requests of another API's form. Where only workers of another kind serve the model, those get them as
  // they came, on paths that such workers may have.
  Task<void> handle_translated(Exchange& exchange, const DialectRoute& route);
  Task<void> answer_translated(DialectExchange& exchange);
  Task<void> refuse_untranslated(Exchange& exchange, ApiError fault);
  Task<void> answer_own(Exchange& exchange);
  Task<void> route_and_forward(Exchange& exchange, ForwardParser parse);

  ProxyCore core_;
  AdmissionQueue& queue_;
  AccessGate gate_;
  Replies replies_;
  RequestIntake intake_;
  AdmissionStage admission_;
  RequestDriver driver_;
  PrefixEndpoint prefixes_;
  PersonaEndpoint personas_;
  RouteExplainer explainer_;
  Generations generations_;
  bool leaving_ = false;
};

}  // namespace troupe
