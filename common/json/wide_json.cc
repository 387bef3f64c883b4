#include "common/json/wide_json.h"

#include <string>

#include "common/json/wide_integers.h"

namespace troupe {

StatusOr<bj::value> parse_json_with_wide_integers(std::string_view json) {
  auto value = parse_json(json);
  if (value.ok()) return value;
  const std::string spelled = with_wide_integers(json, WideIntegers::kAsMarkedText);
  return spelled.empty() ? value : parse_json(spelled);
}

}  // namespace troupe
