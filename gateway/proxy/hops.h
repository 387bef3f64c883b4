#pragma once

// Counts gateways on a request's way (x-troupe-hops): where one of them, or a proxy in between, leads back to
// another, the request would go round until its time is over, each round with retries.

#include <string_view>

#include "common/api/error.h"
#include "common/net/http_message.h"

namespace troupe {

inline constexpr std::string_view kHopsHeader = "x-troupe-hops";
inline constexpr int kHopsMax = 4;

// Gateways that the request has passed before this one; 508 once they are kHopsMax.
ApiResult<int> hops_of(const HttpRequest& request);

}  // namespace troupe
