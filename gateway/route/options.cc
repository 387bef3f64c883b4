#include "gateway/route/options.h"

namespace troupe::route {

std::string_view mode_name(Mode mode) {
  for (const auto& [name, named] : kModeNames) {
    if (named == mode) return name;
  }
  return kModeNames[0].first;
}

}  // namespace troupe::route
