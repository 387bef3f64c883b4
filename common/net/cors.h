#pragma once

// Cross-origin requests of browsers (the Fetch standard, 3.2): pages of allowed origins may ask, and read the
// answers, errors and streams, too. Credentials are none of it: clients send keys in a header.

#include <optional>
#include <string>
#include <vector>

#include "common/net/http_message.h"

namespace troupe {

// Origins as browsers send them, such as http://localhost:8000; "*": any. None: no header is sent, and pages
// from elsewhere read nothing.
using CorsOrigins = std::vector<std::string>;

// Headers of an answer to `request`; none: it has no allowed origin.
HeaderList cors_headers(const CorsOrigins& origins, const HttpRequest& request);
// Headers of the answer, 204, to a browser that asks whether it may send a request; nullopt: no such
// question, or not from an allowed origin. It comes without a key.
std::optional<HeaderList> preflight_answer(const CorsOrigins& origins, const HttpRequest& request);

}  // namespace troupe
