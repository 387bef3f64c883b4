#pragma once

// From the bytes of a request to the flow's first decision: all that the gateway computes itself. Parses,
// keys, and chooses (request_parser.h, route/router.h); records the arrival of traffic.

#include <string>

#include "common/api/error.h"
#include "common/net/http_server.h"
#include "gateway/proxy/access_gate.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/replies.h"
#include "gateway/proxy/request_context.h"
#include "gateway/proxy/request_parser.h"
#include "gateway/route/admission/concurrency_limit.h"

namespace troupe {

// A gateway that has just started holds what it cannot send yet for so long at most.
inline constexpr Duration kInitialProbingMax = std::chrono::seconds(2);

class RequestIntake {
 public:
  RequestIntake(ProxyCore& core, const Replies& replies) : core_(core), replies_(replies) {}

  // A place within limits.requests, or the error of a gateway that drains or is full, or of a request that
  // goes round between gateways.
  ApiResult<bool> enter(const HttpRequest& request, RequestContext& context);
  // Fills the context up to the flow's decision, or returns the error that the client gets.
  ApiResult<bool> prepare(const HttpRequest& request, ForwardParser parse, RequestContext& context);
  // `prepared` failed only because the gateway has not yet probed all workers: prepare_after_look() may
  // succeed.
  bool awaits_initial_probing(const ApiResult<bool>& prepared, const RequestContext& context) const;
  Task<ApiResult<bool>> prepare_after_look(const Exchange& exchange, ForwardParser parse,
                                           RequestContext& context);
  // Waits until all workers have been probed, for kInitialProbingMax at most.
  Task<void> await_initial_probing(const Exchange& exchange, RequestContext& context);

  // Whether other workers serve the model and none of Troupe's does, or there is none of these at all.
  bool only_others_answer(const std::string& model) const;

  RequestParserInput parser_input(const RequestContext& context) { return input_of(core_.parser, context); }

 private:
  RequestParserInput input_of(ApiParser& parser, const RequestContext& context) const;
  Task<void> pause_before_look(const Exchange& exchange, RequestContext& context);
  ApiError refusal(std::string_view path, const RequestContext& context) const;
  ApiResult<std::string> only_model(const RequestContext& context, bool of_others) const;
  ApiResult<RoutedRequest> parse_named(const HttpRequest& request, ForwardParser parse,
                                       RequestParserInput input, const RequestContext& context) const;
  ApiResult<RoutedRequest> parse_for_others(const HttpRequest& request, ForwardParser parse,
                                            const RequestContext& context) const;
  bool others_serve(const std::string& model) const;
  bool only_others_serve(const std::string& model) const;
  void keep_text(RoutedRequest& routed);
  void record_arrival(RequestContext& context);

  ProxyCore& core_;
  const Replies& replies_;
  route::ConcurrencyLimit requests_;
};

}  // namespace troupe
