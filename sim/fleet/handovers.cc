#include "sim/fleet/handovers.h"

#include <algorithm>
#include <utility>

namespace troupe::sim {

void Handovers::keep(const Hash128& set, Prefix prefix) {
  if (prefixes_.size() >= sets_max_) return;
  if (prefixes_.try_emplace(set, std::move(prefix)).second) order_.push_back(set);
}

const Handovers::Prefix* Handovers::find(const Hash128& set) const {
  const auto found = prefixes_.find(set);
  return found == prefixes_.end() ? nullptr : &found->second;
}

std::vector<Hash128> Handovers::sets() const {
  return order_;
}

RequestId Handovers::begin(const Ahead& ahead) {
  under_way_.emplace(++last_, ahead);
  return last_;
}

std::optional<Handovers::Ahead> Handovers::end(RequestId id) {
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return std::nullopt;
  const Ahead ahead = found->second;
  under_way_.erase(found);
  return ahead;
}

std::vector<Handovers::Ahead> Handovers::end_all_at(route::NodeIndex node) {
  std::vector<RequestId> there;
  for (const auto& [id, ahead] : under_way_) {
    if (ahead.move.to == node) there.push_back(id);
  }
  std::sort(there.begin(), there.end());
  std::vector<Ahead> ended;
  for (const RequestId id : there) ended.push_back(*end(id));
  return ended;
}

}  // namespace troupe::sim
