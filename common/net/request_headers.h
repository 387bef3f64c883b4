#pragma once

// Reads the request headers that both programs understand. The rule stands once, so that a gateway and its
// worker log a request under one id and agree on its deadline.

#include <optional>
#include <string_view>

#include "common/api/error.h"
#include "common/core/time.h"
#include "common/net/http_message.h"

namespace troupe {

// A client sends how long it wants to wait; a program's own time-out bounds it.
inline constexpr std::string_view kClientTimeoutHeader = "x-request-timeout-ms";
// A gateway sends its worker the time that is left; the gateway has applied its own bound.
inline constexpr std::string_view kGatewayTimeoutHeader = "x-troupe-timeout-ms";

// Returns the client's x-request-id if it may be echoed, logged and passed on (1 to 128 visible characters),
// else an empty view.
std::string_view request_id_of(const HttpRequest& request);

// Reads the header `name` as milliseconds; nullopt if it is absent. Larger values count as the maximum of 35
// years. A value that is not a positive whole number is a 400 that names the header.
ApiResult<std::optional<Duration>> timeout_header(const HttpRequest& request, std::string_view name);

// Reads kClientTimeoutHeader: at most `longest`, which is also the default.
ApiResult<Duration> client_timeout(const HttpRequest& request, Duration longest);

// Returns a worker's deadline: kGatewayTimeoutHeader if present, without a bound, else client_timeout().
ApiResult<Deadline> request_deadline(const HttpRequest& request, TimePoint now, Duration longest);

}  // namespace troupe
