#pragma once

// The table in a store that all gateways share (etcd), as one of them sees it: which gateway plans, and which
// table counts. Pure: the store's state comes in, with the store's revisions; the caller asks the store.
//
// - planner: the gateway that made the leader's key where there was none, under its lease, while the key
//   exists. A key without a lease has no owner: it would outlive its gateway. A gateway plans only while its
//   lease holds by its own clock, counted from before it asked; but clocks run at different speeds, so
//   nothing depends on that:
// - table: the one last written counts. A write requires that the leader's key is still the writer's own and
//   the table still the one it planned from, both checked by the store in one step (guard()). So a planner
//   that was deposed, or slept, cannot write.
// - late news: state of an older revision is ignored. But an answer that is older than what was known before
//   it was asked for comes from a store that was begun anew.
//
// Without the store no gateway plans: all keep the table they have, with homes that are gone replaced for
// each gateway alone (Planner::patch), until there is a next one.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/time.h"

namespace troupe::route {

// Not thread-safe.
class SharedTable {
 public:
  explicit SharedTable(std::string name) : name_(std::move(name)) {}

  // The store answered as of `revision` a question asked when revision() was `asked`. True: the store was
  // begun anew, counts from the start again, and nothing of it is known.
  bool begun_anew(int64_t revision, int64_t asked);
  // Lease of this gateway's leadership.
  void lease_holds_until(TimePoint until) { lease_until_ = until; }
  // The leader's key as of `revision`: made at `created` (0: it does not exist) by `name`; empty: without a
  // lease, so that it has no owner.
  void leader_is(std::string_view name, int64_t created, int64_t revision);
  // The table's key as of `revision`: made at `created`, last written at `modified`; 0: it does not exist.
  // True: this table replaces the one in force, if it is later.
  bool table_is(int64_t created, int64_t modified, int64_t revision);

  // The latest revision seen.
  int64_t revision() const { return std::max(leader_at_, table_at_); }
  // True, and news, if the table was made and last written at these revisions (0: it does not exist) as of
  // `revision`. (In a store that was begun anew either number may be as before.)
  bool has_stale_table(int64_t created, int64_t modified, int64_t revision) const {
    return table_at_ == 0 || (revision > table_at_ && (modified != modified_ || created != table_created_));
  }
  // Both keys have been seen once.
  bool known() const { return leader_at_ > 0 && table_at_ > 0; }
  bool may_campaign(TimePoint now) const { return known() && created_ == 0 && now < lease_until_; }
  bool may_remove_leader(TimePoint now) const {
    return known() && created_ > 0 && leader_.empty() && now < lease_until_;
  }
  bool leads(TimePoint now) const { return holds_key() && now < lease_until_; }
  bool holds_key() const { return known() && created_ > 0 && leader_ == name_; }
  // Preconditions of a write, checked by the store.
  struct Guard {
    int64_t leader_created = 0;
    int64_t table_modified = 0;  // 0: there is no table
  };
  Guard guard() const { return {created_, modified_}; }
  int64_t table_created() const { return table_created_; }
  const std::string& leader() const { return leader_; }  // empty: none

 private:
  const std::string name_;
  TimePoint lease_until_{};
  std::string leader_;
  int64_t created_ = 0;
  int64_t leader_at_ = 0;  // the revision as of which that holds
  int64_t table_created_ = 0, modified_ = 0;
  int64_t table_at_ = 0;
};

}  // namespace troupe::route
