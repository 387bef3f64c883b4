#pragma once

// Answers of the proxy itself: refusals, failures, and the headers that every answer carries: x-request-id
// and x-route-decision, by which an operator sees where a request went and why.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/net/http_server.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/request_context.h"
#include "gateway/route/policy/policy.h"
#include "gateway/upstream/forward.h"

namespace troupe {

class Replies {
 public:
  // `seed`: of the request ids.
  Replies(ProxyCore& core, uint64_t seed) : core_(core), ids_(seed) {}

  // Sends JSON of the gateway's own, with these headers beside those of every answer.
  Task<void> answer(Exchange& exchange, RequestContext& context, int status, std::string body,
                    HeaderList extra = {});
  // Sends an error. `allow`: the methods, of a 405.
  Task<void> refuse(Exchange& exchange, RequestContext& context, const ApiError& error,
                    std::string_view allow = {});
  // Sends the last worker's refusal, or an error that says how its attempts failed.
  Task<void> give_up(Exchange& exchange, RequestContext& context, ForwardResult& result);
  // Ends a stream of which the client has a part with an error event, without [DONE].
  Task<void> end_broken(Exchange& exchange, RequestContext& context, ForwardResult& result);

  // The request has its answer: counts it, and records status and end.
  void count_answer(RequestContext& context, int status, RequestOutcome end);
  HeaderList own_headers(const RequestContext& context) const;
  // As the client may know it: its address, if it is an operator (its key is marked `admin`, or there are no
  // keys and it asks from this machine), else its name.
  std::string node_name(const RequestContext& context, route::NodeIndex node) const;
  HeaderList stream_headers(const RequestContext& context) const;  // of a stream that no worker has begun
  // The client's id, or a new one.
  std::string request_id(const HttpRequest& request);
  // The error of a request for `model` ("": none is named) that no worker can get now. `asked`: its name to
  // the client, if that is another; else empty.
  ApiError no_candidate(const std::string& model, const std::string& asked = {}) const;

 private:
  std::string route_decision(const RequestContext& context) const;

  ProxyCore& core_;
  route::Random ids_;
};

// The status, in records, of a stream that began with 200 and broke off.
inline constexpr int kBrokenStatus = 502;

}  // namespace troupe
