#include "gateway/access/browser_guard.h"

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

bool is_address(std::string_view name) {
  const std::string text(name);
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// No public name has one label, or ends so.
bool is_local(std::string_view name) {
  if (name.find('.') == std::string_view::npos) return true;
  constexpr std::string_view kEnds[] = {".local", ".localhost", ".internal", ".svc"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [name](std::string_view end) {
    return absl::EndsWithIgnoreCase(to_absl(name), to_absl(end));
  });
}

}  // namespace

std::optional<ApiError> host_refusal(std::string_view host, const std::vector<std::string>& allowed) {
  const std::string_view name = name_of(host);
  if (!name.empty() && (is_address(name) || is_local(name))) return std::nullopt;
  const bool is_allowed = std::any_of(allowed.begin(), allowed.end(), [name](const std::string& one) {
    return absl::EqualsIgnoreCase(one, to_absl(name));
  });
  if (is_allowed) return std::nullopt;
  return forbidden(absl::StrCat("the host '", to_absl(name),
                                "' is none of this port's; ask by its address, or name it in admin.hosts"));
}

std::optional<ApiError> change_refusal(const BrowserHeaders& headers) {
  const bool from_page = !headers.sec_fetch_site.empty() && headers.sec_fetch_site != "none";
  if (!headers.origin.empty() || from_page)
    return forbidden("a web page may not do this: send it without an Origin header");
  const std::string_view type = headers.content_type;
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
