#pragma once

// Web pages and a worker's routes: no page from elsewhere changes what a worker keeps, or reads what users
// sent (net/cors.h).

#include <cstdint>
#include <optional>

#include "common/api/error.h"
#include "common/net/cors.h"
#include "common/net/http_message.h"

namespace troupe {

// A route's rule for requests that a web page sent.
enum class PageRule : uint8_t {
  kGuarded,   // no page changes anything by it
  kOnlyAsks,  // its POST changes nothing here: any page may send it
  kOfUsers,   // guarded, and its answers are users' own
};

// The error of a request that its route's rule refuses. Pages of `allowed` origins pass.
std::optional<ApiError> page_refusal_of(const HttpRequest& request, PageRule rule,
                                        const CorsOrigins& allowed);

}  // namespace troupe
