#pragma once

// One field of a form (multipart/form-data, RFC 7578). A form is understood whole or not at all: a server
// that reads it in another way would find another model than the one that was asked for here. Pure functions.

#include <optional>
#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe {

// The boundary that a content type names (1 to 70 characters); empty: it is no form. The error: a form whose
// boundary is missing, too long, or named twice.
StatusOr<std::string> form_boundary(std::string_view content_type);

// Where the part with this name has its value in `body`, as a view of it; nullopt: there is none. The error
// says what is malformed, or that the name is there twice or that there are more than 256 parts. Time is
// linear in the body.
StatusOr<std::optional<std::string_view>> form_field(std::string_view body, std::string_view boundary,
                                                     std::string_view name);

}  // namespace troupe
