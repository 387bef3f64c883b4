#pragma once

// Requests that a browser makes for a page from elsewhere. An operator's browser reaches ports that no
// stranger does: a page that it shows must neither change the fleet (cross-site request forgery) nor read it
// under a name of its own that it had resolve to this address (DNS rebinding).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/error.h"

namespace troupe {

// 403 where `host`, a Host header's value, is a name under which a page from elsewhere may have come: neither
// an address, nor a name that only a local network resolves (one label, .local, .internal, .svc, .localhost),
// nor one of `allowed`.
std::optional<ApiError> host_refusal(std::string_view host, const std::vector<std::string>& allowed);

// Headers of a request; empty: it has none.
struct BrowserHeaders {
  std::string_view origin = {}, sec_fetch_site = {}, content_type = {};
};
// The error of a request that changes something: 403 if a page sent it, 415 if its body is said to be no JSON
// (which a page can send without asking first).
std::optional<ApiError> change_refusal(const BrowserHeaders& headers);

}  // namespace troupe
