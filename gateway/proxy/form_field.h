#pragma once

// One field of a form (multipart/form-data, RFC 7578), found without reading the others: files may be large.
// Pure functions.

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

// The boundary that a content type names; empty: it is no form, or names none (1 to 70 characters).
std::string form_boundary(std::string_view content_type);

// Where the first part with this name has its value in `body`, as a view of it; nullopt: there is none, or
// the form is cut. Time is linear in the body.
std::optional<std::string_view> form_field(std::string_view body, std::string_view boundary,
                                           std::string_view name);

}  // namespace troupe
