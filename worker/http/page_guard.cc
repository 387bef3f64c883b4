#include "worker/http/page_guard.h"

namespace troupe {

std::optional<ApiError> page_refusal_of(const HttpRequest& request, PageRule rule,
                                        const CorsOrigins& allowed) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (reads) return rule == PageRule::kOfUsers ? rebound_refusal(request, allowed) : std::nullopt;
  return rule == PageRule::kOnlyAsks ? std::nullopt : change_refusal(request, &allowed);
}

}  // namespace troupe
