#pragma once

// /admin/explain: where a request would go, and why. Nothing is sent, and nothing is learned from it.

#include <string>

#include "common/api/error.h"
#include "common/net/http_server.h"
#include "gateway/proxy/access_gate.h"
#include "gateway/proxy/admission_stage.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/request_intake.h"

namespace troupe {

class RouteExplainer {
 public:
  RouteExplainer(ProxyCore& core, const AccessGate& gate, RequestIntake& intake,
                 const AdmissionStage& admission)
      : core_(core), gate_(gate), intake_(intake), admission_(admission) {}

  // JSON, or the error that the body would get.
  ApiResult<std::string> explain(const HttpRequest& request);

 private:
  ProxyCore& core_;
  const AccessGate& gate_;
  RequestIntake& intake_;
  const AdmissionStage& admission_;
};

}  // namespace troupe
