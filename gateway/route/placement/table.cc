#include "gateway/route/placement/table.h"

#include <cmath>

namespace troupe::route {

double rendezvous_score(double draw, double weight, bool equal_weights) {
  return equal_weights ? draw : -weight / std::log(draw);
}

NodeIndex rendezvous_best(Hash128 key, const ClusterView& view, std::span<const NodeIndex> candidates) {
  NodeIndex best = kNoNode;
  double best_score = -1;
  for (const NodeIndex candidate : candidates) {
    const NodeView& node = view.node(candidate);
    const double score =
        rendezvous_score(rendezvous_draw(key.lo, node.hash.lo), node.weight, view.equal_weights());
    if (score > best_score) {
      best_score = score;
      best = candidate;
    }
  }
  return best;
}

Hash128 SetTable::strict_name(std::string_view model, size_t number) {
  Hash128 name = hash_bytes(model);
  name.lo += number;
  return name;
}

const SetTable::Map::value_type* SetTable::entry(Hash128 set, std::string_view model) const {
  const size_t strict_sets = origin_.strict_sets;
  if (strict_sets == 0) {
    const auto it = sets_.find(set);
    return it == sets_.end() ? nullptr : &*it;
  }
  const size_t first = strict_number(set, strict_sets);
  for (size_t i = 0; i < strict_sets; ++i) {
    const auto it = sets_.find(strict_name(model, (first + i) % strict_sets));
    if (it != sets_.end()) return &*it;
  }
  return nullptr;
}

}  // namespace troupe::route
