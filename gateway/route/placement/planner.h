#pragma once

// Makes the table: every few seconds, from the loads of all sets of the fleet.
//
// - copies: in proportion to load: a set's share of all nodes, rounded up; a set near a whole node has a warm
//   second; copies fall only when they are clearly too many
// - homes: an existing home stays, as long as its planned load allows. Missing ones come by weighted
//   rendezvous among nodes with room: in planned load, and in the KV budget (a set's tokens are known)
// - movement: after a join at most 2 % of all load a tick. Growth and dead nodes have no budget
// - strict: prefix keys are hashed into a few sets, no node is home to more than max_sets_per_node of them
//
// A table follows from the plan before it, the cluster and loads alone. Copies that are kept and joins that
// are spread over many ticks make it depend on its past, so the gateways of a fleet don't plan side by side:
// one plans, the others follow (gateways.h).

#include <memory>
#include <span>
#include <vector>

#include "gateway/route/fleet/set_stats.h"
#include "gateway/route/fleet/view.h"
#include "gateway/route/options.h"
#include "gateway/route/placement/table.h"

namespace troupe::route {

// All of the past that the next table follows from; gateways send it to each other (table_codec.h).
struct Plan {
  std::shared_ptr<const SetTable> table = std::make_shared<SetTable>();
  SetLoads loads;           // strict: loads of the strict sets
  std::vector<bool> known;  // by node: could be home at the last plan
  bool joining = false;     // from a join until nothing is held back any more
  bool partial = false;     // another gateway's, with homes on nodes unknown here
};

// Not thread-safe.
class Planner {
 public:
  // `name`: the gateway's, among those that share the fleet.
  Planner(const PlannerOptions& options, Mode mode, Hash128 name = {});

  // `kv_tokens`: by node, 0 (or none) for an unknown size.
  struct Fleet {
    const ClusterView& view;
    std::span<const int64_t> kv_tokens;
  };
  // Applies from the next plan on; the number of strict sets stays.
  void change(PlannerOptions options);
  // The tick. Returns the same pointer where nothing changed.
  std::shared_ptr<const SetTable> plan(const Fleet& fleet, SetLoads loads);
  // The cluster changed between ticks: homes that are gone are replaced at once, nothing else moves.
  std::shared_ptr<const SetTable> replace_gone(const Fleet& fleet);

  // Strict: a request of the set `key` failed at all of `asked`, all of its homes among them. The set moves
  // at once from the last of them to the next node by rendezvous that has room; or where none has, shares the
  // homes of another set until the next plan. `common`: for all gateways, not only here and now. False: no
  // node is left.
  struct Homeless {
    Hash128 key;
    std::string_view model;
    std::span<const NodeIndex> asked;
    bool common = true;
  };
  bool leave_home(const Fleet& fleet, const Homeless& request);

  // Replaces this gateway's plan by another's; then patch().
  std::shared_ptr<const SetTable> follow(const Fleet& fleet, Plan plan);
  // For a gateway that does not plan: the common table, with homes known here to be gone replaced locally.
  std::shared_ptr<const SetTable> patch(const Fleet& fleet);

  // Slots reused by other nodes from the next view on: the nodes there are home to no set, nor were before.
  void remove_nodes(std::span<const NodeIndex> nodes);

  // The plan behind table(): the same table, unless patch() had to replace something.
  const Plan& common() const { return plan_; }
  const std::shared_ptr<const SetTable>& table() const { return table_; }
  // Strict sets of a model; 0: every set is its own. The table in force may be another gateway's, with other
  // settings.
  size_t strict_sets() const { return mode_ == Mode::kStrict ? options_.strict_sets : 0; }
  size_t sets_in_force() const {
    return plan_.table->epoch() > 0 ? plan_.table->origin().strict_sets : strict_sets();
  }
  // Copies that became home since the start: each costs its set's prefill once.
  uint64_t copies_moved() const { return copies_moved_; }

 private:
  class Draft;
  // `strict_sets`: of each model in the draft.
  void draw(const Fleet& fleet, Draft& draft, size_t strict_sets);
  std::shared_ptr<const SetTable> commit(SetTable::Map sets, size_t strict_sets);
  NodeIndex place_for(Hash128 set, const Fleet& fleet, const Homeless& request) const;
  bool could_share(const Homeless& request) const;
  bool whole(const ClusterView& view) const;

  PlannerOptions options_;
  Mode mode_;
  Hash128 name_;
  Plan plan_;
  std::shared_ptr<const SetTable> table_;
  uint64_t copies_moved_ = 0;
};

}  // namespace troupe::route
