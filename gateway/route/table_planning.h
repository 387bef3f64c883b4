#pragma once

// A router's part in the table that counts for all gateways of the fleet: it plans the table, from its own
// sample of the sets' loads and from the others', or follows another gateway's (placement/gateways.h,
// placement/shared_table.h). ClusterState::table is the result.
//
// Not thread-safe; Router's part.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/route/placement/gateways.h"
#include "gateway/route/placement/planner.h"
#include "gateway/route/placement/shared_loads.h"
#include "gateway/route/placement/work_sample.h"
#include "gateway/route/router_core.h"

namespace troupe::route {

class TablePlanning {
 public:
  // REQUIRES: `core` outlives it.
  explicit TablePlanning(RouterCore& core);

  // Called by the router: the rules of the next plans, the slots that other nodes get with the next view, and
  // a view with other nodes. Homes that are gone are replaced at once.
  void change(const PlannerOptions& planner) { planner_.change(planner); }
  void remove_nodes(std::span<const NodeIndex> nodes);
  void view_changed();

  // Router::plan().
  void plan(TimePoint now);
  void plan(TimePoint now, SetLoads loads);
  // Planner::leave_home(), of a request that failed at all of `asked`.
  bool leave_home(const Hash128& set, std::string_view model, std::span<const NodeIndex> asked);
  // Its common() is the plan behind the table that counts for all gateways, as far as this one knows;
  // ClusterState::table differs from that table while this gateway knows homes to be gone.
  const Planner& planner() const { return planner_; }
  const TableVersion& version() const { return planner_.common().table->version(); }
  const std::string& table_message();

  GatewayAnnouncement announcement() const;
  void observe(const GatewayAnnouncement& announcement, TimePoint now);
  const Gateways& gateways() const { return gateways_; }
  // That gateway's table is older than this one's.
  bool has_stale_table(const Hash128& gateway) const {
    return gateways_.has_stale_table(gateway, announcement());
  }
  // Ignores an older table than ours, or one of another kind (gateways.h). The error names what is malformed.
  Status adopt_table(std::string_view message);
  uint64_t tables_of_other_kind() const { return tables_of_other_kind_; }  // ignored
  // False: another gateway plans the table.
  bool plans() const { return options_.shared_table ? plans_here_ : plans_; }

  // The work that plan(now) goes by; with peers it takes a sample for them. Theirs come to adopt_sample().
  WorkSample& own() { return own_; }
  Status adopt_sample(const Hash128& gateway, std::string_view message, TimePoint now);

  // With RouterOptions::shared_table: this gateway's message to the one that plans, its announcement and its
  // sample, some 160 KB at most. (Every plan(now) takes a sample.)
  std::string loads_message() const;
  Status adopt_loads_message(const Hash128& gateway, std::string_view message, TimePoint now);
  // A successor of the table that counts, planned from the loads of all gateways; it counts once
  // adopt_table() receives it. Where the store has no table (any more): the current one. Empty: nothing
  // changes, or there are no loads to plan from.
  std::string draft_table(TimePoint now, bool there_is_one);
  void set_plans(bool plans) { plans_here_ = plans; }  // for display

 private:
  void plan_from(SetLoads loads, TimePoint now);
  Planner::Fleet fleet();

  const RouterOptions& options_;
  ClusterState& known_;
  Planner planner_;
  Gateways gateways_;
  WorkSample own_;
  SharedLoads others_loads_;
  bool plans_ = true;        // this gateway plans the table that counts; never where it is shared
  bool plans_here_ = false;  // the same where it is shared
  bool has_loads_ = false;   // to plan from
  std::string message_;      // the table that counts, encoded on request or received
  TableVersion message_is_;  // its version
  uint64_t tables_of_other_kind_ = 0;
  std::vector<int64_t> kv_tokens_;
  TimePoint planned_at_{};
};

}  // namespace troupe::route
