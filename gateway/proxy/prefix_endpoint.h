#pragma once

// /v1/prefixes: prefixes that are kept ahead of use, through a gateway. Every home that the table has for a
// prefix's set computes it, one after the other, because its requests will go there; for a new set the
// policy's first candidate does, and on failure the next. The answer holds what every worker said. A worker
// that does not know the endpoint is a server of another kind, and not ill.
//
// Every worker of a model gives a prefix the same id, so any gateway asks all workers which of them have it.
// The gateway remembers pins alone (pin_service.h).

#include <vector>

#include "common/net/http_server.h"
#include "gateway/proxy/access_gate.h"
#include "gateway/proxy/admission_stage.h"
#include "gateway/proxy/pin_service.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/replies.h"
#include "gateway/proxy/request_context.h"
#include "gateway/proxy/request_driver.h"
#include "gateway/proxy/request_intake.h"

namespace troupe {

class PrefixEndpoint {
 public:
  struct Parts {
    const AccessGate& gate;
    RequestIntake& intake;
    AdmissionStage& admission;
    const RequestDriver& driver;
    Replies& replies;
  };
  PrefixEndpoint(ProxyCore& core, const Parts& parts) : core_(core), parts_(parts), pins_(core) {}

  // GET /v1/prefixes: what this client's tenant has pinned through this gateway.
  Task<void> list(Exchange& exchange);
  // POST /v1/prefixes.
  Task<void> make(Exchange& exchange);
  // GET and DELETE /v1/prefixes/{id}, of every worker that has it.
  Task<void> known(Exchange& exchange);

 private:
  struct Ask;
  Task<ApiResult<bool>> admit(Exchange& exchange, RequestContext& context);
  std::vector<route::Candidate> homes_of(const RequestContext& context) const;
  void keep(const HttpRequest& request, const RequestContext& context, const std::vector<Ask>& asks) const;
  Task<ForwardResult> ask_to_make(const HttpRequest& request, RequestContext& context);
  HeaderList headers_for(const HttpRequest& request, const RequestContext& context, bool own) const;
  Task<void> release(const HttpRequest& request, const RequestContext& context, std::string_view id);
  bool is_too_short(const RequestContext& context, route::NodeIndex node) const;
  bool asks_another(const RequestContext& context, const std::vector<Ask>& asks);
  Task<bool> ask_of_known(const HttpRequest& request, const RequestContext& context, bool by_owner, Ask& ask);
  Task<void> answer_made(Exchange& exchange, RequestContext& context, const std::vector<Ask>& asks);
  Task<void> answer_not_made(Exchange& exchange, RequestContext& context, std::vector<Ask>& asks);

  ProxyCore& core_;
  const Parts parts_;
  const PinService pins_;
};

}  // namespace troupe
