#include "common/net/cors.h"

#include <algorithm>
#include <charconv>

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

bool has_header(const HttpRequest& request, std::string_view name) {
  return std::any_of(request.headers.begin(), request.headers.end(),
                     [name](const auto& header) { return header.first == name; });
}

// Browsers send their languages and where the page is from, whatever a script sets.
bool is_from_browser(const HttpRequest& request) {
  return has_header(request, "accept-language") || has_header(request, "sec-fetch-site") ||
         has_header(request, "origin") || request.header("user-agent").starts_with("Mozilla/");
}

Status no_origin(std::string_view text, std::string_view why) {
  return invalid_argument(absl::StrCat("cors.allowed_origins: '", to_absl(text),
                                       "' is no origin such as http://localhost:8000: ", to_absl(why)));
}

// `rest`, a host and perhaps a port, as browsers write it; the error says what is wrong.
StatusOr<std::string> authority_of_origin(std::string_view scheme, std::string_view rest) {
  if (rest.find('*') != std::string_view::npos)
    return invalid_argument("'*' is all of them, and part of none");
  const std::string_view name = name_of(rest);
  if (name.empty() || rest.find_first_of("/?#@ \t,") != std::string_view::npos)
    return invalid_argument("it is a scheme, a host and a port, and no more");
  if (std::any_of(rest.begin(), rest.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7f; }))
    return invalid_argument("browsers write a name of other letters in ASCII (xn--…)");
  const bool is_bracketed = rest.starts_with('[');
  std::string host = canonical_host(name);
  if (is_bracketed && !is_address(host)) return invalid_argument("in [ ] is an IPv6 address");
  if (is_bracketed) host = absl::StrCat("[", host, "]");
  const std::string_view after = rest.substr(name.size() + (is_bracketed ? 2 : 0));
  if (after.empty()) return host;
  uint16_t port = 0;
  const char* const end = after.data() + after.size();
  const auto [last, error] = std::from_chars(after.data() + 1, end, port);
  if (after.front() != ':' || error != std::errc() || last != end || port == 0)
    return invalid_argument("behind the host is at most a port, 1 to 65535");
  const bool is_own = (scheme == "http" && port == 80) || (scheme == "https" && port == 443);
  return is_own ? host : absl::StrCat(host, ":", port);
}

StatusOr<std::string> parse_origin(std::string_view text) {
  if (text == "*" || text == "null") return std::string(text);
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos || scheme_end == 0) return no_origin(text, "it has no scheme");
  const std::string scheme = absl::AsciiStrToLower(to_absl(text.substr(0, scheme_end)));
  std::string_view rest = text.substr(scheme_end + 3);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const auto authority = authority_of_origin(scheme, rest);
  if (!authority.ok()) return no_origin(text, to_std(authority.status().message()));
  return absl::StrCat(scheme, "://", *authority);
}

}  // namespace

Status normalize_origins(CorsOrigins& origins) {
  for (std::string& origin : origins) {
    TROUPE_ASSIGN_OR_RETURN(origin, parse_origin(origin));
  }
  return absl::OkStatus();
}

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

std::optional<ApiError> rebound_refusal(const HttpRequest& request, const CorsOrigins& allowed) {
  if (!is_from_browser(request) || allows_origin(allowed, request.header("origin"))) return std::nullopt;
  const std::string_view host = name_of(request.header("host"));
  if (!host.empty() && is_local(host)) return std::nullopt;
  return forbidden(absl::StrCat("a browser reads this by an address or a local name, not as '", to_absl(host),
                                "', which a web page may have had resolve here"));
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
