// Reads `tool_choice`.

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

Fault read_tool_choice(std::string_view param, dom::element value, bool& may_call) {
  const std::string_view name = value.is_string() ? value.get_string().value_unsafe() : std::string_view();
  if (name == "auto" || name == "none") {
    may_call = name == "auto";
    return std::nullopt;
  }
  if (name != "required" && !value.is_object()) return expected(param, "\"none\" or \"auto\"", value);
  return ApiError::unsupported(
      param, absl::StrCat("'", to_absl(param),
                          "' cannot make the model call a tool here; leave it out or set it to \"none\" or "
                          "\"auto\"."));
}

}  // namespace troupe
