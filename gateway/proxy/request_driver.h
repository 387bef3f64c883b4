#pragma once

// The driver of a RequestFlow over sockets: it performs the flow's action, and what comes of it is the flow's
// next event. Which worker is tried, whether a failed one is followed by another, and whether a stream
// continues elsewhere is the flow's to decide (route/request/request_flow.h).

#include "common/net/http_server.h"
#include "gateway/proxy/access_gate.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/replies.h"
#include "gateway/proxy/request_context.h"
#include "gateway/upstream/forward.h"

namespace troupe {

class RequestDriver {
 public:
  RequestDriver(ProxyCore& core, const AccessGate& gate, Replies& replies)
      : core_(core), gate_(gate), replies_(replies) {}

  // Sends the request, which was prepared and admitted, until it has its answer.
  Task<void> run(Exchange& exchange, RequestContext& context);
  // The client's headers, with the gateway's own: id, trace, routing hints, the time that is left.
  HeaderList worker_headers(const HttpRequest& request, const RequestContext& context) const;

 private:
  // Settles a request whose client has the whole answer when the request's task ends before its worker's
  // answer has.
  struct DoneGuard {
    RequestDriver& driver;
    RequestContext& context;
    ~DoneGuard();
  };
  Task<void> pass_on_whole(Exchange& exchange, RequestContext& context, ForwardResult& result);
  Task<ForwardResult> attempt(Exchange& exchange, RequestContext& context);
  ForwardInput forward_input(const Exchange& exchange, RequestContext& context) const;
  void use_token_forms(const HttpRequest& request, RequestContext& context, ForwardInput& input) const;
  void name_model(const HttpRequest& request, RequestContext& context, ForwardInput& input) const;
  void ask_ids(const Exchange& exchange, RequestContext& context, ForwardInput& input) const;
  // Events of an attempt.
  void first_byte(RequestContext& context);
  bool gives_up(const Exchange& exchange, RequestContext& context);
  void answered(RequestContext& context, const ForwardResult& result);
  route::Action failed(const Exchange& exchange, RequestContext& context, const ForwardResult& result);

  bool may_resend(const RequestContext& context) const;
  route::AnswerProgress progress(const Exchange& exchange, const RequestContext& context) const;
  void record_answer(const RequestContext& context, const ForwardResult& result) const;
  void log_failure(const RequestContext& context, const ForwardResult& result) const;

  ProxyCore& core_;
  const AccessGate& gate_;
  Replies& replies_;
};

}  // namespace troupe
