#include "worker/text/tokenizer/metaspace.h"

#include "absl/strings/str_cat.h"
#include "worker/text/unicode.h"

namespace troupe {

StatusOr<std::string> metaspace_replacement(const JsonItem& item) {
  TROUPE_ASSIGN_OR_RETURN(std::string replacement, string_field(item, "replacement"));
  if (count_code_points(replacement) == 1) return replacement;
  return invalid_argument(field_path(item, "replacement") + ": expected one character");
}

StatusOr<std::string> metaspace_scheme(const JsonItem& item) {
  TROUPE_ASSIGN_OR_RETURN(bool add_prefix_space, bool_field(item, "add_prefix_space", true));
  if (find_field(item, "prepend_scheme") == nullptr)
    return std::string(add_prefix_space ? "always" : "never");
  TROUPE_ASSIGN_OR_RETURN(std::string scheme, string_field(item, "prepend_scheme"));
  std::string where = field_path(item, "prepend_scheme");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return invalid_argument(absl::StrCat(where, ": unknown scheme \"", scheme, "\" (always, first, never)"));
  }
  if (!add_prefix_space && scheme != "never") {
    return invalid_argument(
        absl::StrCat(where, ": \"", scheme, "\", but \"add_prefix_space\": false means \"never\""));
  }
  return scheme;
}

}  // namespace troupe
