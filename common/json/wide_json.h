#pragma once

// JSON of those who know integers of any size, as Python's programs do: tools, and the arguments of calls.

#include <string_view>

#include "common/json/json.h"

namespace troupe {

// As parse_json(), with integers beyond 64 bits as marked text (wide_integers.h).
StatusOr<bj::value> parse_json_with_wide_integers(std::string_view json);

}  // namespace troupe
