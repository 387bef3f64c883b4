#pragma once

// --help of a command: an example, the flags that most questions need, a trace's fields, and then all other
// flags.

#include <string>
#include <string_view>

#include "common/settings/schema.h"

namespace troupe::sim {

// `program`: "troupe-sim replay". REQUIRES: the schema has the flags that the command's page puts first.
std::string help_page(std::string_view program, const SettingsSchema& schema);
// A line for a shell, of any command: "troupe-sim replay --trace …".
std::string_view example_of(std::string_view program);
// The fields of a trace, in a few lines.
std::string_view trace_words();

}  // namespace troupe::sim
