#pragma once

// The gateway's main port, and the life of a request in it:
//
//   parse, prefix_key   request_parser.h
//   choose              route/request/request_flow.h, which decides every next action; this is its driver
//   wait                admission_queue.h, where all workers are full; then choose again
//   forward             upstream/forward.h, once an attempt
//
// POST /v1/prefixes has phases of its own (prefix_endpoint.cc): it goes to all homes of its set.
//
// A stream that has begun and whose worker fails goes on at another (proxy_resume.cc). The head was the first
// one's: x-route-decision names where the answer began.
//
// Every answer, errors too, carries x-request-id and x-route-decision, by which an operator sees where a
// request went and why. The client going away cancels the handler, and with it the request at the worker.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/core/time.h"
#include "common/json/json.h"
#include "common/net/http_server.h"
#include "gateway/access/api_keys.h"
#include "gateway/cluster/fleet.h"
#include "gateway/cluster/prefix_text_cache.h"
#include "gateway/proxy/admission_queue.h"
#include "gateway/proxy/request_parser.h"
#include "gateway/route/admission/concurrency_limit.h"
#include "gateway/route/request/request_flow.h"
#include "gateway/route/request/retry.h"
#include "gateway/route/router.h"
#include "gateway/telemetry/instruments.h"
#include "gateway/telemetry/phase_times.h"
#include "gateway/telemetry/request_observers.h"
#include "gateway/telemetry/request_record.h"
#include "gateway/telemetry/traffic_recorder.h"
#include "gateway/upstream/forward.h"
#include "gateway/upstream/resume_filter.h"

namespace troupe {

struct ProxyOptions : RequestParserOptions, route::StallOptions {
  size_t requests_max = 4096;      // at once; more are answered 429
  size_t text_requests_max = 256;  // of them, at once, that ask for tokens only; more are answered 429
  route::RetryOptions retry;
  Duration client_stall = std::chrono::seconds(5);  // see ForwardInput
  // What a worker of another kind may have begun may be begun anew elsewhere, unless its client says.
  bool resend_to_foreign = true;
};

// Of a request that is only explained: the name of the API key it would come with.
inline constexpr std::string_view kExplainedKeyHeader = "x-troupe-key";

class Proxy {
 public:
  struct Parts {
    Fleet& fleet;
    route::Router& router;
    Instruments& instruments;
    AdmissionQueue& admission_queue;
    const Clock& clock;
    const Logger& log;
  };
  Proxy(const ProxyOptions& options, const Parts& parts, uint64_t seed);

  // From now on requests are written to `record`, which must outlive this.
  void record_to(TrafficRecorder& record);
  // From now on the texts of personas that are asked for are kept in `texts`, which must outlive this.
  void keep_texts(PrefixTextCache& texts);
  // From now on only who has one of these may ask; they must outlive this.
  void ask_for(const ApiKeys& keys) { keys_ = &keys; }
  // From now on `trails`, which must outlive this, are told of requests.
  void tell(RequestObservers& observers) { observers_ = &observers; }

  // A gateway that has just started holds what it cannot send yet for so long at most.
  static constexpr Duration kFirstLookMax = std::chrono::seconds(2);

  // Limits, time-outs and retries of requests from now on.
  void change(const ProxyOptions& options);

  Task<void> handle(Exchange& exchange);
  // From now on it is not ready any more, so that nobody is sent here; who comes all the same is answered.
  void give_notice() { leaving_ = true; }
  // A request with this head may come to be let in: its body is worth waiting for. False: it has no key, and
  // handle() refuses it without its body.
  bool wants_body(const HttpRequest& head) const;
  // From now on new requests are refused (503, Connection: close), running ones go on, and those that wait do
  // so for at most half of `grace`: there is to be time for their answers.
  void start_drain(Duration grace) {
    leaving_ = draining_ = true;
    admission_queue_.drain(grace / 2);
  }
  bool draining() const { return draining_; }
  bool healthy() const { return !leaving_ && fleet_.ready(); }
  size_t requests_running() const { return running_; }

  // GET /health: status and body.
  std::pair<int, std::string> health() const;
  // Where would this body go? Nothing is sent. JSON, or the error the body would get.
  ApiResult<std::string> explain(const HttpRequest& request);
  // The client's own, or a new one.
  std::string request_id(const HttpRequest& request);

 private:
  // One of `places` that was entered, until this ends.
  class Permit {
   public:
    Permit(route::ConcurrencyLimit& places, const Clock& clock) : places_(places), clock_(clock) {}
    ~Permit() { places_.leave(clock_.now()); }
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;

   private:
    route::ConcurrencyLimit& places_;
    const Clock& clock_;
  };
  // What is known of a request so far; grows as the phases go.
  struct RequestContext {
    TimePoint started;
    std::string request_id;
    Deadline deadline;
    RoutedRequest routed;
    route::RequestFlow flow;              // decides; this driver performs
    std::unique_ptr<TrafficEntry> entry;  // null: not recorded
    std::shared_ptr<ApiClient> client;    // who asks; null: anybody may
    std::unique_ptr<ApiVisit> visit;      // likewise
    std::string body;                     // for the worker, where not as it came; else empty
    // At the workers or waiting for them, however many tries it takes; null: it is none that computes much.
    std::unique_ptr<AdmissionQueue::AdmissionTicket> admission_ticket;
    bool waited = false;           // in the admission queue
    std::optional<Permit> inside;  // the gateway, by its limit
    std::optional<Permit> text;    // of one that asks for tokens only
    UsageTap passed;               // of this attempt's answer
    Resend resend = Resend::kAsConfigured;
    // Of streams.
    std::optional<ResumeTap> tap;
    bool ours = false;      // the worker of this attempt
    bool asks_ids = false;  // it was asked for ids
    std::string resume_body;
    TimePoint paused_at{};  // the last event before the failure that a resume mends
    bool counted = false;   // by count_answer()
    bool timed = false;     // it is a chat or a completion: how long it takes is told
    RequestOutcome end = RequestOutcome::kCancelled;  // unless it has an answer
    std::unique_ptr<RequestRecord> request_record;    // null: nobody is told
    PhaseTimes phases;
  };
  class Running;
  class GoneCharge;
  class BookingGuard;
  class Signals;

  Task<void> answer_own(Exchange& exchange);
  Task<void> route_and_forward(Exchange& exchange, ForwardParser parse);
  // The request has its answer, whatever becomes of it on its way to the client.
  void count_answer(RequestContext& context, int status, RequestOutcome end) {
    instruments_.request_done(status);
    context.counted = true;
    context.end = end;
    if (context.request_record == nullptr) return;
    context.request_record->status = status;
    context.request_record->end = end;
  }
  ApiResult<bool> admit(RequestContext& context);

  // access_gate.cc
  ApiResult<bool> identify(const HttpRequest& request, RequestContext& context) const;
  ApiResult<bool> identify_explained(const HttpRequest& request, RequestContext& context) const;
  ApiResult<bool> let_in(const HttpRequest& request, RequestContext& context) const;
  static bool may_use(const RequestContext& context, const std::string& model);
  static int64_t prompt_cost(const HttpRequest& request);
  static std::string_view tenant_salt(const RequestContext& context);
  static std::string_view body_for_worker(const HttpRequest& request, const RequestContext& context);
  static void charge_counted(const RequestContext& context, const route::AnswerCounts& counts);
  void charge_seen(const Exchange& exchange, const RequestContext& context) const;
  void charge_gone(const Exchange& exchange, const RequestContext& context) const;
  void charge(const Exchange& exchange, const RequestContext& context, const ForwardResult& result) const;
  static int64_t answered(const RequestContext& context);

  ApiResult<bool> prepare(const HttpRequest& request, ForwardParser parse, RequestContext& context);
  Task<void> first_look(const Exchange& exchange, RequestContext& context);
  Task<void> before_looking_again(const Exchange& exchange, RequestContext& context);
  bool awaits_first_look(const ApiResult<bool>& prepared, const RequestContext& context) const;
  Task<ApiResult<bool>> prepare_after_look(const Exchange& exchange, ForwardParser parse,
                                           RequestContext& context);
  RequestParserInput parser_input(const RequestContext& context) {
    return {options_, parser_, tenant_salt(context)};
  }
  void keep_text(RoutedRequest& routed);
  void record_arrival(RequestContext& context);
  void record_answer(const RequestContext& context, const ForwardResult& result) const;
  ApiResult<std::string> only_model(const RequestContext& context) const;
  ApiError no_candidate(const std::string& model) const;
  route::FlowContext flow_context() { return {router_, retry_budget_, *signals_, options_}; }
  Task<void> forward(Exchange& exchange, RequestContext& context);
  Task<ForwardResult> attempt(Exchange& exchange, RequestContext& context);
  void learn_answer(RequestContext& context, const ForwardResult& result);
  route::Action learn_failure(const Exchange& exchange, RequestContext& context, const ForwardResult& result);
  void log_failure(const RequestContext& context, const ForwardResult& result) const;
  HeaderList worker_headers(const HttpRequest& request, const RequestContext& context) const;
  ForwardInput forward_input(const Exchange& exchange, RequestContext& context);

  // admission_wait.cc
  static route::AdmissionSpec admission_spec(const RoutedRequest& routed, const ApiClient* client,
                                             TimePoint deadline);
  ApiResult<bool> ask_in(RequestContext& context);
  bj::object explain_admission(const RoutedRequest& routed, const route::Decision& decision,
                               const RequestContext& context) const;
  Task<ApiResult<bool>> wait_in_queue(RequestContext& context);
  static void rewrite(const HttpRequest& request, RequestContext& context);

  // proxy_resume.cc
  void ask_ids(const Exchange& exchange, RequestContext& context, ForwardInput& input);
  bool may_resend(const RequestContext& context) const;
  route::AnswerProgress progress(const Exchange& exchange, const RequestContext& context) const;
  bool gives_up(const Exchange& exchange, RequestContext& context);
  void began(RequestContext& context);
  Task<void> end_broken(Exchange& exchange, RequestContext& context, ForwardResult& result);

  // request_tracing.cc; REQUIRES: context.request_record
  void record_attempt(const Exchange& exchange, RequestContext& context);
  static void record_headers(const RequestRecord& request_record, HeaderList& headers);
  void record_attempt_end(RequestContext& context, const ForwardResult& result);
  void end_record(const Exchange& exchange, const RequestContext& context);

  // prefix_endpoint.cc
  struct PrefixAsk;
  Task<void> make_prefix(Exchange& exchange);
  std::vector<route::Candidate> homes_of(const RequestContext& context) const;
  Task<ForwardResult> ask_to_make(const HttpRequest& request, RequestContext& context);
  bool asks_another(const RequestContext& context, const ForwardResult& last);
  Task<void> answer_made(Exchange& exchange, RequestContext& context, const std::vector<PrefixAsk>& asks);
  Task<void> answer_not_made(Exchange& exchange, RequestContext& context, std::vector<PrefixAsk>& asks);
  Task<void> known_prefix(Exchange& exchange);
  Task<bool> ask_of_known(const HttpRequest& request, const RequestContext& context, PrefixAsk& ask);
  Task<void> give_up(Exchange& exchange, RequestContext& context, ForwardResult& result);

  Task<void> answer(Exchange& exchange, RequestContext& context, int status, std::string body);
  // `allow`: of a 405.
  Task<void> refuse(Exchange& exchange, RequestContext& context, const ApiError& error,
                    std::string_view allow = {});
  HeaderList own_headers(const RequestContext& context) const;
  std::string route_decision(const RequestContext& context) const;

  ProxyOptions options_;
  ApiParser parser_;
  Fleet& fleet_;
  route::Router& router_;
  Instruments& instruments_;
  AdmissionQueue& admission_queue_;
  const Clock& clock_;
  const Logger& log_;
  const std::unique_ptr<route::NodeSignals> signals_;
  route::RetryBudget retry_budget_;
  route::Random ids_;
  size_t running_ = 0;
  route::ConcurrencyLimit places_, text_places_;
  bool leaving_ = false, draining_ = false;
  TrafficRecorder* record_ = nullptr;
  PrefixTextCache* texts_ = nullptr;
  const ApiKeys* keys_ = nullptr;
  RequestObservers* observers_ = nullptr;
};

}  // namespace troupe
