#pragma once

// The style sheet and the script of html_page().

#include <string_view>

namespace troupe::sim {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace troupe::sim
