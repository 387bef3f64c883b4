#pragma once

// The queue in front of the workers (admission_queue.h), as a request meets it: it arrives, and waits where
// the workers of its model are full. Requests for tokens only have a limit of their own instead.

#include "common/api/error.h"
#include "common/json/json.h"
#include "gateway/proxy/admission_queue.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/request_context.h"
#include "gateway/route/admission/concurrency_limit.h"

namespace troupe {

class AdmissionStage {
 public:
  AdmissionStage(ProxyCore& core, AdmissionQueue& queue) : core_(core), queue_(queue) {}

  // Names the end user; true: it or the API key has limits in windows of time, and take_holds() must follow.
  bool has_account(const HttpRequest& request, RequestContext& context);
  // Takes its holds of those. The error is what the client gets: 429.
  Task<ApiResult<bool>> take_holds(const HttpRequest& request, RequestContext& context);
  // Takes a ticket of the queue; of a text-only request, which no worker's batch has a part in, a place
  // within limits.tokenize_requests. The error is what the client gets.
  ApiResult<bool> arrive(RequestContext& context);
  // Until it is admitted, or the error that the client gets. REQUIRES: its ticket waits.
  Task<ApiResult<bool>> wait(RequestContext& context);
  // Says what would happen to a request of this context's client now (/admin/explain).
  bj::object explain(const RoutedRequest& routed, const route::Decision& decision,
                     const RequestContext& context) const;

 private:
  ProxyCore& core_;
  AdmissionQueue& queue_;
  route::ConcurrencyLimit text_requests_;
};

}  // namespace troupe
