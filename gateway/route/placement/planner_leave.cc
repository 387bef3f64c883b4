// Moves a strict set whose home fails before the node is known to be dead; and empties reused slots.

#include <algorithm>

#include "gateway/route/placement/planner.h"

namespace troupe::route {

bool Planner::leave_home(const Fleet& fleet, const Homeless& request) {
  const SetTable::Map::value_type* entry = table_->entry(request.key, request.model);
  if (entry == nullptr) return false;
  const auto& [set, homes] = *entry;
  const NodeIndex next = place_for(set, fleet, request);
  const bool shares = next == kNoNode && could_share(request);
  if (next == kNoNode && !shares) return false;
  SetTable::Map sets = table_->sets();
  sets.erase(set);
  if (!shares) {
    Homes moved;
    for (const NodeIndex n : homes.nodes().first(homes.size() - 1)) moved.push_back(n);
    moved.push_back(next);
    sets.emplace(set, std::move(moved));
    copies_moved_ += 1;
  }
  if (request.common) {
    commit(std::move(sets), sets_in_force());
  } else {
    table_ = std::make_shared<SetTable>(table_->origin(), std::move(sets));
  }
  return true;
}

// The rendezvous choice among nodes not asked yet that may be home to one more set.
NodeIndex Planner::place_for(Hash128 set, const Fleet& fleet, const Homeless& request) const {
  std::vector<size_t> held(fleet.view.size(), 0);
  for (const auto& [other, homes] : table_->sets()) {
    for (const NodeIndex n : homes.nodes()) held[n] += 1;
  }
  std::vector<NodeIndex> with_room;
  for (const NodeIndex n : fleet.view.homes_for(request.model)) {
    const bool asked = std::find(request.asked.begin(), request.asked.end(), n) != request.asked.end();
    const bool alive = fleet.view.node(n).state == NodeState::kAlive;
    if (!asked && alive && held[n] < options_.max_sets_per_node) with_room.push_back(n);
  }
  return rendezvous_best(set, fleet.view, with_room);
}

// True if another set of the model has a home that was not asked yet.
bool Planner::could_share(const Homeless& request) const {
  for (size_t i = 0; i < sets_in_force(); ++i) {
    const auto found = table_->sets().find(SetTable::strict_name(request.model, i));
    if (found == table_->sets().end()) continue;
    for (const NodeIndex n : found->second.nodes()) {
      if (std::find(request.asked.begin(), request.asked.end(), n) == request.asked.end()) return true;
    }
  }
  return false;
}

// The plan is partial afterwards, as with another gateway's table on unknown nodes: the others have it whole.
void Planner::remove_nodes(std::span<const NodeIndex> nodes) {
  for (const NodeIndex n : nodes) {
    if (n < plan_.known.size()) plan_.known[n] = false;
  }
  const auto vacant = [&](NodeIndex n) { return std::find(nodes.begin(), nodes.end(), n) != nodes.end(); };
  const auto without = [&](const std::shared_ptr<const SetTable>& table) {
    SetTable::Map sets;
    for (const auto& [set, homes] : table->sets()) {
      Homes left;
      for (const NodeIndex n : homes.nodes()) {
        if (!vacant(n)) left.push_back(n);
      }
      if (left.size() > 0) sets.emplace(set, std::move(left));
    }
    return sets == table->sets() ? table : std::make_shared<const SetTable>(table->origin(), std::move(sets));
  };
  const bool same = table_ == plan_.table;
  std::shared_ptr<const SetTable> common = without(plan_.table);
  plan_.partial |= common != plan_.table;
  plan_.table = std::move(common);
  table_ = same ? plan_.table : without(table_);
}

}  // namespace troupe::route
