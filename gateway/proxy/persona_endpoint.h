#pragma once

// /v1/personas: cards, examples and lore under names (persona/registry.h). PUT publishes: the persona is kept
// first, then its card is computed where its requests will go, and pinned where the body says so, all by
// POST /v1/prefixes as any client's would be (prefix_endpoint.h). That a worker could not compute it is no
// failure: the answer says so. A pin ends with its version, or with the persona.

#include <string>
#include <string_view>

#include "common/net/http_server.h"
#include "gateway/persona/registry.h"
#include "gateway/proxy/access_gate.h"
#include "gateway/proxy/prefix_endpoint.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/replies.h"
#include "gateway/proxy/request_context.h"
#include "gateway/proxy/request_intake.h"

namespace troupe {

class PersonaEndpoint {
 public:
  struct Parts {
    const AccessGate& gate;
    RequestIntake& intake;
    Replies& replies;
    PrefixEndpoint& prefixes;
  };
  PersonaEndpoint(ProxyCore& core, const Parts& parts) : core_(core), parts_(parts) {}

  // GET /v1/personas, and GET, PUT and DELETE /v1/personas/{name}.
  Task<void> handle(Exchange& exchange);

 private:
  struct Publication;
  Task<void> list(Exchange& exchange);
  Task<void> show(Exchange& exchange);
  Task<void> publish(Exchange& exchange);
  Task<void> erase(Exchange& exchange);
  ApiResult<bool> let_in(const HttpRequest& request, RequestContext& context) const;
  ApiResult<Publication> read(const HttpRequest& request, const RequestContext& context) const;
  Task<ApiResult<bool>> keep(const HttpRequest& request, Publication& publication);
  Task<bj::value> compute(Exchange& exchange, const RequestContext& context, Publication& publication);
  Task<void> note_pin(Exchange& exchange, const Publication& publication);
  Task<void> unpin(Exchange& exchange, std::string id);
  std::string model_for(const Publication& publication, const RequestContext& context) const;

  ProxyCore& core_;
  const Parts parts_;
};

}  // namespace troupe
