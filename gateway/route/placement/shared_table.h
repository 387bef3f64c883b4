#pragma once

// The table in a store that all gateways share (etcd), as one of them sees it: who plans, and which table
// counts. Pure: what the store says comes in, with the store's revisions; what to ask of it is for the caller
// to do.
//
//   who plans     whoever made the leader's key where there was none, under its lease, as long as it is
//   there.
//                 A gateway plans only while its lease holds by its own clock, counted from before it asked;
//                 but clocks run at different speeds, so nothing hangs on that:
//   what counts   the table last written. One is written only where the leader's key is still the writer's
//   own
//                 and the table still the one it planned from, both checked by the store in one step
//                 (guard()). So a planner that was deposed, or slept, cannot write.
//   late news     say how the store was at an older revision, and are not heeded. But an answer that is older
//   than
//                 what was known before it was asked for comes from a store that was begun anew.
//
// Without the store nobody plans: all go by the table they have, with homes that are gone replaced for each
// gateway alone (Planner::patch), and by the next one as soon as there is one.

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

  // The store answered as of `revision` what was asked when `asked` was revision(). One that was begun anew
  // counts from the start again: true, and nothing of it is known.
  bool begun_anew(int64_t revision, int64_t asked);
  // Under which this gateway leads, if it does.
  void lease_holds_until(TimePoint until) { lease_until_ = until; }
  // The leader's key as of `revision`: made at `created` by `name`; nobody's: 0.
  void leader_is(std::string_view name, int64_t created, int64_t revision);
  // The table's key as of `revision`: made at `created`, last written at `modified`; none: 0. True: it is to
  // be gone by, if it is later than the one that is gone by.
  bool table_is(int64_t created, int64_t modified, int64_t revision);

  // The latest that was heard of.
  int64_t revision() const { return std::max(leader_at_, table_at_); }
  // As of `revision` the table was made and last written then (0: there is none), which is news. (Of a store
  // that was begun anew either number may be as before.)
  bool lacks(int64_t created, int64_t modified, int64_t revision) const {
    return table_at_ == 0 || (revision > table_at_ && (modified != modified_ || created != table_created_));
  }
  // All of it has been seen once.
  bool known() const { return leader_at_ > 0 && table_at_ > 0; }
  bool may_campaign(TimePoint now) const { return known() && created_ == 0 && now < lease_until_; }
  bool leads(TimePoint now) const { return holds_key() && now < lease_until_; }
  bool holds_key() const { return known() && created_ > 0 && leader_ == name_; }
  // Written may be only where the store has both.
  struct Guard {
    int64_t leader_created = 0;
    int64_t table_modified = 0;  // 0: there is no table
  };
  Guard guard() const { return {created_, modified_}; }
  int64_t table_created() const { return table_created_; }
  const std::string& leader() const { return leader_; }  // empty: nobody

 private:
  const std::string name_;
  TimePoint lease_until_{};
  std::string leader_;
  int64_t created_ = 0;
  int64_t leader_at_ = 0;  // the revision of which that is
  int64_t table_created_ = 0, modified_ = 0;
  int64_t table_at_ = 0;
};

}  // namespace troupe::route
