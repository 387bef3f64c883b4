#include "worker/kv/idle_leaves.h"

#include <string>

namespace troupe {

namespace {

// A planned prefix that was not used while the cache turned over this often counts as planned no more.
constexpr uint64_t kPlannedTurnovers = 4;

}  // namespace

IdleLeaves::IdleLeaves(RadixTree& tree, UseHistory& history, int32_t block_count)
    : tree_(tree),
      history_(history),
      planned_ticks_max_(kPlannedTurnovers * static_cast<uint64_t>(block_count)) {}

void IdleLeaves::add(RadixNodeId id) {
  RadixNode& r = tree_.run(id);
  lists_of(r)[history_.class_of(r.use)].emplace(r.use.idle_since, id);
  r.listed = true;
}

void IdleLeaves::remove(RadixNodeId id) {
  RadixNode& r = tree_.run(id);
  lists_of(r)[history_.class_of(r.use)].erase({r.use.idle_since, id});
  r.listed = false;
}

RadixNodeId IdleLeaves::split(RadixNodeId id, int32_t count) {
  const bool listed = tree_.run(id).listed;
  if (listed) remove(id);
  const RadixNodeId front = tree_.split(id, count);
  planned_count_ += tree_.run(front).planned;
  tree_.run(id).use.idle_since -= static_cast<uint64_t>(count);
  if (listed) add(id);
  return front;
}

RadixNodeId IdleLeaves::least_of(const Lists& lists) {
  RadixNodeId least = -1;
  double least_value = 0;
  uint64_t least_since = 0;
  for (size_t c = 0; c < lists.size(); ++c) {
    if (lists[c].empty()) continue;
    for (const RadixNodeId id : {lists[c].begin()->second, lists[c].rbegin()->second}) {
      const uint64_t since = last_idle_since(tree_.run(id));
      const double worth = history_.value_of(static_cast<IdleClass>(c), since);
      if (least >= 0 && (worth > least_value || (worth == least_value && since >= least_since))) continue;
      least = id;
      least_value = worth;
      least_since = since;
    }
  }
  return least;
}

void IdleLeaves::set_planned(const LockedPrefix& path, int32_t count, bool planned) {
  if (!planned && planned_count_ == 0) return;
  for (RadixNodeId id = path.run; id >= 0;) {
    RadixNode& r = tree_.run(id);
    id = r.parent;
    if (r.planned == planned || r.depth + r.count() > count) continue;
    r.planned = planned;
    planned_count_ += planned ? 1 : -1;
  }
}

// The plan changes, and no request shows that a set is routed to another node now.
void IdleLeaves::retire_planned() {
  if (planned_count_ == 0) return;
  for (auto& list_of_class : planned_) {
    while (!list_of_class.empty() && list_of_class.begin()->first + planned_ticks_max_ < history_.ticks()) {
      const RadixNodeId id = list_of_class.begin()->second;
      remove(id);
      tree_.run(id).planned = false;
      planned_count_ -= 1;
      add(id);
    }
  }
}

Status IdleLeaves::verify_lists(const Lists& lists, size_t& listed_count) const {
  for (size_t c = 0; c < lists.size(); ++c) {
    for (const auto& [since, id] : lists[c]) {
      const RadixNode& r = tree_.run(id);
      if (r.blocks.empty() || !r.listed || r.use.idle_since != since || history_.class_of(r.use) != c ||
          r.planned != (&lists == &planned_)) {
        return absl::InternalError("run " + std::to_string(id) + " is in the wrong list of leaves");
      }
    }
    listed_count += lists[c].size();
  }
  return absl::OkStatus();
}

Status IdleLeaves::verify(int32_t idle_count) const {
  size_t listed_count = 0, evictable_count = 0;
  TROUPE_RETURN_IF_ERROR(verify_lists(unplanned_, listed_count));
  TROUPE_RETURN_IF_ERROR(verify_lists(planned_, listed_count));
  int32_t idle = 0, planned = 0;
  for (RadixNodeId id = 0; id < tree_.id_end(); ++id) {
    const RadixNode& r = tree_.run(id);
    if (r.blocks.empty()) continue;
    const bool evictable = r.references == 0 && r.is_leaf();
    planned += r.planned;
    if (evictable != r.listed) {
      return absl::InternalError("run " + std::to_string(id) + " is wrongly in or out of the leaves");
    }
    evictable_count += evictable;
    idle += r.references == 0 ? r.count() : 0;
  }
  if (listed_count != evictable_count || planned != planned_count_) {
    return absl::InternalError("the lists of leaves have lost count");
  }
  if (idle == idle_count) return absl::OkStatus();
  return absl::InternalError("the cached blocks without a reference have lost count");
}

}  // namespace troupe
