#pragma once

// Makes the table: every few seconds, from the loads of all sets of the fleet.
//
//   copies    in proportion to load: a set's share of all nodes, rounded up; a set near a whole node has a
//             warm second; copies fall only when they are clearly too many
//   homes     who is home stays, as long as its planned load allows. What is missing comes by weighted
//             rendezvous among nodes with room: in planned load, and in the KV budget (a set's tokens are
//             known)
//   movement  little: after a join at most 2 % of all load a tick. Growth and dead nodes have no budget
//   strict    prefix keys are hashed into a few sets, no node is home to more than max_sets_per_node of them
//
// The same loads in the same order of events give the same table, so gateways with one source of loads agree.

#include <memory>
#include <span>
#include <vector>

#include "gateway/route/options.h"
#include "gateway/route/set_book.h"
#include "gateway/route/table.h"
#include "gateway/route/view.h"

namespace troupe::route {

// Not thread-safe.
class Planner {
 public:
  Planner(const PlannerOptions& options, Mode mode);

  // `kv_tokens`: by node, 0 (or none) where its size is not known.
  struct Fleet {
    const ClusterView& view;
    std::span<const int64_t> kv_tokens;
  };
  // The tick. The same table again (same pointer) where nothing changed.
  std::shared_ptr<const SetTable> plan(const Fleet& fleet, SetLoads loads);
  // The cluster changed between ticks: homes that are gone are replaced at once, nothing else moves.
  std::shared_ptr<const SetTable> replace_gone(const Fleet& fleet);

  const std::shared_ptr<const SetTable>& table() const { return table_; }
  // Copies that became home since the start: each costs its set's prefill once.
  uint64_t copies_moved() const { return copies_moved_; }

 private:
  class Draft;
  std::shared_ptr<const SetTable> adopt(const Fleet& fleet, Draft& draft);

  PlannerOptions options_;
  Mode mode_;
  SetLoads loads_;  // of the last tick
  std::shared_ptr<const SetTable> table_;
  std::vector<bool> known_;  // nodes that could be home at the last plan
  bool joining_ = false;     // since a join, until nothing is held back any more
  uint64_t copies_moved_ = 0;
};

}  // namespace troupe::route
