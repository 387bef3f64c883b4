#include "sim/fleet/background_prefills.h"

#include <algorithm>
#include <utility>

namespace troupe::sim {

RequestId BackgroundPrefills::begin(const Prefill& prefill) {
  under_way_.emplace(++last_, prefill);
  return last_;
}

std::optional<BackgroundPrefills::Prefill> BackgroundPrefills::end(RequestId id) {
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return std::nullopt;
  const Prefill prefill = found->second;
  under_way_.erase(found);
  return prefill;
}

std::vector<BackgroundPrefills::Prefill> BackgroundPrefills::end_all_at(route::NodeIndex node) {
  std::vector<RequestId> there;
  for (const auto& [id, prefill] : under_way_) {
    if (prefill.move.to == node) there.push_back(id);
  }
  std::sort(there.begin(), there.end());
  std::vector<Prefill> ended;
  for (const RequestId id : there) ended.push_back(*end(id));
  return ended;
}

}  // namespace troupe::sim
