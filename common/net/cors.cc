#include "common/net/cors.h"

#include <algorithm>

namespace troupe {

HeaderList cors_headers(const CorsOrigins& origins, const HttpRequest& request) {
  HeaderList headers;
  const std::string_view origin = request.header("origin");
  if (origins.empty() || origin.empty()) return headers;
  const auto has = [&origins](std::string_view one) {
    return std::find(origins.begin(), origins.end(), one) != origins.end();
  };
  const bool any = has("*");
  if (!any) headers.emplace_back("vary", "origin");
  if (!any && !has(origin)) return headers;
  headers.emplace_back("access-control-allow-origin", any ? "*" : std::string(origin));
  headers.emplace_back("access-control-expose-headers", "x-request-id, x-route-decision, retry-after");
  return headers;
}

std::optional<HeaderList> preflight_answer(const CorsOrigins& origins, const HttpRequest& request) {
  if (request.method != "OPTIONS" || request.header("access-control-request-method").empty())
    return std::nullopt;
  const HeaderList allowed = cors_headers(origins, request);
  if (find_header(allowed, "access-control-allow-origin").empty()) return std::nullopt;
  HeaderList headers;  // (every answer gets cors_headers())
  headers.emplace_back("access-control-allow-methods", "GET, HEAD, POST, DELETE");
  const std::string_view asked = request.header("access-control-request-headers");
  if (!asked.empty()) headers.emplace_back("access-control-allow-headers", std::string(asked));
  headers.emplace_back("access-control-max-age", "600");
  return headers;
}

}  // namespace troupe
