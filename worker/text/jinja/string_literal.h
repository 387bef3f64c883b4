#pragma once

// A template's string literals: Python's escapes.

#include <string>
#include <string_view>

namespace troupe::jinja {

// Unknown escapes stay as they are, as in Python. Throws JinjaError for an escape that is no character.
std::string unescape_string(std::string_view literal, int line);

}  // namespace troupe::jinja
