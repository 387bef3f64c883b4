#include "common/net/cors.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/host_scope.h"
#include "common/core/status.h"

namespace troupe {
namespace {

ApiError forbidden(std::string_view why) {
  ApiError error = ApiError::bad_field("", why);
  error.http_status = 403;
  error.code = "cross_site";
  return error;
}

// Without the port.
std::string_view name_of(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string_view::npos ? std::string_view() : host.substr(1, end - 1);
  }
  return host.substr(0, host.find(':'));
}

bool is_local(std::string_view name) {
  return is_address(name) || name.find('.') == std::string_view::npos ||
         host_scope(name) == HostScope::kLocalName;
}

}  // namespace

bool allows_origin(const CorsOrigins& origins, std::string_view origin) {
  return !origin.empty() && std::any_of(origins.begin(), origins.end(), [origin](const std::string& one) {
    return one == "*" || one == origin;
  });
}

HeaderList cors_headers(const CorsOrigins& origins, const HttpRequest& request) {
  HeaderList headers;
  const std::string_view origin = request.header("origin");
  if (origins.empty() || origin.empty()) return headers;
  const bool any = std::find(origins.begin(), origins.end(), "*") != origins.end();
  if (!any) headers.emplace_back("vary", "origin");
  if (!allows_origin(origins, origin)) return headers;
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

std::optional<ApiError> host_refusal(std::string_view host, const std::vector<std::string>& allowed) {
  const std::string_view name = name_of(host);
  if (!name.empty() && is_local(name)) return std::nullopt;
  const bool is_allowed = std::any_of(allowed.begin(), allowed.end(), [name](const std::string& one) {
    return absl::EqualsIgnoreCase(one, to_absl(name));
  });
  if (is_allowed) return std::nullopt;
  return forbidden(absl::StrCat("the host '", to_absl(name),
                                "' is none of this port's; ask by its address, or name it in admin.hosts"));
}

std::optional<ApiError> page_refusal(const HttpRequest& request, const CorsOrigins* allowed) {
  const std::string_view origin = request.header("origin"), site = request.header("sec-fetch-site");
  const bool from_page = !origin.empty() || (!site.empty() && site != "none");
  if (!from_page || (allowed != nullptr && allows_origin(*allowed, origin))) return std::nullopt;
  return forbidden(
      absl::StrCat("a web page may not do this: send it without an Origin header",
                   allowed == nullptr ? "" : ", or name the page's origin in cors.allowed_origins"));
}

std::optional<ApiError> change_refusal(const HttpRequest& request, const CorsOrigins* allowed) {
  if (auto page = page_refusal(request, allowed)) return page;
  const std::string_view type = request.header("content-type");
  const std::string_view media = type.substr(0, type.find(';'));
  if (type.empty() || absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(to_absl(media)), "application/json"))
    return std::nullopt;
  ApiError error = ApiError::bad_field(
      "", absl::StrCat("the body must be sent as content-type: application/json, not ", to_absl(media)));
  error.http_status = 415;
  error.code = "not_json";
  return error;
}

}  // namespace troupe
