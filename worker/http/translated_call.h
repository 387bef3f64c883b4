#pragma once

// A request in another API's form (common/dialects), answered by the routes that the worker has for its own.

#include <functional>
#include <optional>
#include <string_view>

#include "common/dialects/dialect_exchange.h"
#include "common/net/cors.h"

namespace troupe {

// Its parts outlive the request.
struct TranslatedCall {
  Generations& generations;
  const CorsOrigins& origins;  // whose pages may change something
  // Answers the translated request, counted at `endpoint`, or refuses it for the fault.
  std::function<Task<void>(Exchange&, std::string_view endpoint, std::optional<ApiError> fault)> answer;
};

Task<void> answer_translated(Exchange& exchange, const DialectRoute& route, TranslatedCall call);

}  // namespace troupe
