// Names of models that lead to others: `routes`.

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gateway/config.h"

namespace troupe {
namespace {

// {model: NAME, to: MODEL} or {model: NAME, split: {MODEL: WEIGHT, …}}; names of models may have dots.
StatusOr<ModelRoute> read_route(const SettingsItem& item) {
  constexpr std::string_view kSplit = "split.";
  ModelRoute route;
  std::string to;
  for (const YamlEntry& line : item.lines) {
    if (line.key == "model") {
      route.name = line.text;
    } else if (line.key == "to") {
      to = line.text;
    } else if (line.key.starts_with(kSplit)) {
      ModelArm arm;
      arm.model = line.key.substr(kSplit.size());
      if (!absl::SimpleAtod(line.text, &arm.weight))
        return invalid_argument(
            absl::StrCat("line ", line.line, ": ", line.key, ": must be a weight, a number"));
      route.arms.push_back(std::move(arm));
    } else {
      return invalid_argument(
          absl::StrCat("line ", line.line, ": there is no '", line.key, "'; there are model, to and split"));
    }
  }
  if (!to.empty() && !route.arms.empty()) return invalid_argument("to and split: name one of them");
  if (!to.empty()) route.arms.push_back({to, 1});
  return route;
}

}  // namespace

StatusOr<ModelRoutes> make_routes(const GatewaySettings& settings) {
  std::vector<ModelRoute> routes;
  for (size_t i = 0; i < settings.routes.size(); ++i) {
    auto route = read_route(settings.routes[i]);
    if (!route.ok()) return annotate(route.status(), absl::StrCat("routes[", i, "]"));
    routes.push_back(*std::move(route));
  }
  auto made = ModelRoutes::of(std::move(routes));
  return made.ok() ? made : annotate(made.status(), "routes");
}

}  // namespace troupe
