#pragma once

// Cross-origin requests of browsers (the Fetch standard, 3.2): pages of allowed origins may ask, and read the
// answers, errors and streams, too. Credentials are none of it: clients send keys in a header.
//
// A browser reaches ports that no stranger does, and sends what other pages ask without their reading
// answers: a page must neither change what a server keeps (cross-site request forgery) nor read an operator's
// answers under a name of its own that it had resolve to this address (DNS rebinding). A page that changes
// something is known by its Origin, which browsers send with every POST and DELETE, also to what they take
// for the page's own server: after DNS rebinding Origin and Host are the same, foreign name. So no Origin
// passes for being like Host, nor for being this machine's: only allowed ones do, and on a port without that
// setting none. Programs send none, and may use any Host.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/error.h"
#include "common/core/status.h"
#include "common/net/http_message.h"

namespace troupe {

// Origins as browsers send them, such as http://localhost:8000; "*": any. None: no header is sent, and pages
// from elsewhere read nothing.
using CorsOrigins = std::vector<std::string>;

// Makes of what an operator wrote what browsers send: scheme and host in lower case, without the scheme's own
// port and a last slash. kInvalidArgument names what is no origin.
Status normalize_origins(CorsOrigins& origins);
// Is `origin`, an Origin header's value, one of them? ("" is none.)
bool allows_origin(const CorsOrigins& origins, std::string_view origin);
// Headers of an answer to `request`; none: it has no allowed origin.
HeaderList cors_headers(const CorsOrigins& origins, const HttpRequest& request);
// Headers of the answer, 204, to a browser that asks whether it may send a request; nullopt: no such
// question, or not from an allowed origin. It comes without a key.
std::optional<HeaderList> preflight_answer(const CorsOrigins& origins, const HttpRequest& request);

// 403 where `host`, a Host header's value, is a name under which a page from elsewhere may have come: neither
// an address, nor a name that only a local network resolves (core/host_scope.h), nor one of `allowed`.
std::optional<ApiError> host_refusal(std::string_view host, const std::vector<std::string>& allowed);

// 403 where a browser reads what is somebody's under a name that host_refusal() would not take: after DNS
// rebinding a page reads as its own server what no Origin comes with. `request` is a browser's if it has what
// browsers send with everything and scripts cannot take away. Pages of `allowed` origins pass.
std::optional<ApiError> rebound_refusal(const HttpRequest& request, const CorsOrigins& allowed);

// 403 if a page sent it. `allowed`: origins whose pages may; null: none may.
std::optional<ApiError> page_refusal(const HttpRequest& request, const CorsOrigins* allowed);
// The same of a request that changes something by a body in JSON; or 415 if its body is said to be something
// else, which a page can send without asking first.
std::optional<ApiError> change_refusal(const HttpRequest& request, const CorsOrigins* allowed);

}  // namespace troupe
