#pragma once

// String literals of a template: Python's escapes.

#include <string>
#include <string_view>

namespace troupe::jinja {

// Unknown escapes stay as they are, as in Python. Throws JinjaError for escapes that are no character.
std::string unescape_string(std::string_view literal, int line);

}  // namespace troupe::jinja
