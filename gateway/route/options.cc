#include "gateway/route/options.h"

namespace troupe::route {
namespace {
constexpr Mode kModes[] = {Mode::kExact, Mode::kGossip, Mode::kPlan, Mode::kStrict};
}

std::string_view mode_name(Mode mode) {
  switch (mode) {
    case Mode::kExact:
      return "exact";
    case Mode::kGossip:
      return "gossip";
    case Mode::kPlan:
      return "plan";
    case Mode::kStrict:
      return "strict";
  }
  return "exact";
}

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const Mode mode : kModes) names.emplace_back(mode_name(mode));
  return names;
}

StatusOr<Mode> parse_mode(std::string_view name) {
  std::string known;
  for (const Mode mode : kModes) {
    if (name == mode_name(mode)) return mode;
    known += (known.empty() ? "" : ", ") + std::string(mode_name(mode));
  }
  return invalid_argument("mode: there is no '" + std::string(name) + "'; there are " + known);
}

}  // namespace troupe::route
