#include "gateway/access/model_routes.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr size_t kArmsMax = 64;

// Weighted rendezvous: -weight / ln(u) for u uniform in (0, 1).
double score_of(const ModelArm& arm, const Hash128& subject) {
  const uint64_t drawn = mix_hash(subject, hash_bytes(arm.model));
  const double uniform = (static_cast<double>(drawn >> 11) + 0.5) * 0x1p-53;
  return -arm.weight / std::log(uniform);
}

}  // namespace

StatusOr<ModelRoutes> ModelRoutes::of(std::vector<ModelRoute> routes) {
  std::sort(routes.begin(), routes.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  ModelRoutes all;
  all.routes_ = std::move(routes);
  for (const ModelRoute& route : all.routes_) {
    const auto refuse = [&route](std::string_view why) {
      return invalid_argument(absl::StrCat("'", route.name, "' ", to_absl(why)));
    };
    if (route.name.empty()) return invalid_argument("model: is needed, the name that clients ask for");
    if (&route != all.routes_.data() && (&route - 1)->name == route.name) return refuse("is there twice");
    if (route.arms.empty()) return refuse("needs `to`, a model, or `split`, models with their weights");
    if (route.arms.size() > kArmsMax) return refuse("has more than 64 models");
    bool any = false;
    for (const ModelArm& arm : route.arms) {
      if (arm.model.empty()) return refuse("leads to a model without a name");
      if (!(arm.weight >= 0) || arm.weight > 1e6) return refuse("has a weight that is not 0 to 1000000");
      // (That of its own name is the model itself, whose other part goes elsewhere.)
      if (arm.model != route.name && all.find(arm.model) != nullptr)
        return refuse(absl::StrCat("leads to '", arm.model, "', which is a route, too"));
      any = any || arm.weight > 0;
    }
    if (!any) return refuse("has no model with a weight above 0");
  }
  return all;
}

const ModelRoute* ModelRoutes::find(std::string_view name) const {
  const auto found =
      std::lower_bound(routes_.begin(), routes_.end(), name,
                       [](const ModelRoute& route, std::string_view other) { return route.name < other; });
  return found != routes_.end() && found->name == name ? &*found : nullptr;
}

const ModelArm& arm_of(const ModelRoute& route, const Hash128& subject) {
  return *std::max_element(route.arms.begin(), route.arms.end(), [&subject](const auto& a, const auto& b) {
    return score_of(a, subject) < score_of(b, subject);
  });
}

}  // namespace troupe
