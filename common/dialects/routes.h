#pragma once

// The paths of all dialects. A new form is a folder beside these and its rows in routes.cc.

#include <memory>
#include <span>
#include <string_view>

#include "common/dialects/dialect.h"

namespace troupe {

// A path of a dialect. `translate`: the request's body (and path) in our own form, or why it is refused, in
// words that name the client's field.
struct DialectRoute {
  std::string_view methods, path;  // as an Allow header lists them
  ApiResult<TranslatedRequest> (*translate)(std::string_view path, std::string_view body);
  // Makes the answer to a request that is refused before it could be translated.
  std::unique_ptr<DialectAnswer> (*refuse)();
};

std::span<const DialectRoute> dialect_routes();
// nullptr: no dialect's. HEAD is GET.
const DialectRoute* find_dialect(std::string_view method, std::string_view path);
// As an Allow header lists them; empty: no dialect has the path.
std::string_view dialect_methods(std::string_view path);
// Whether a request there only asks a model, as against ending, or reading, what another request has begun.
bool dialect_asks(std::string_view path);

}  // namespace troupe
