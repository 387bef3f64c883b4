#pragma once

// etcd as gateways meet it, and nothing more: keys with revisions, leases on a clock of its own, changes that
// can be followed from a revision on until they are compacted away. Every question is done in one step
// (linearizable); what travels, and is late, lost or done twice on its way, is the world's (shared_world.h).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gateway/route/leader_sync.h"

namespace troupe::route::faults {

class Store {
 public:
  struct Change {
    int64_t revision = 0;
    bool of_leader = false;  // else of the table
    std::optional<StoreKey> key;
  };
  // A table is about to be written by `asker`, over what is there now.
  std::function<void(const std::string& asker, const std::string& table)> on_write;
  std::function<void(const Change&)> on_change;
  bool heeds_compares = true;  // false: a store that would be of no use, to see that it is noticed

  int64_t grant(Duration ttl, TimePoint now);
  Duration keep_alive(int64_t lease, TimePoint now);  // zero: there is none
  void revoke(int64_t lease);
  void expire(TimePoint now);
  // nullopt: the lease that it is to be put under is none.
  std::optional<StoreAnswer> ask(const StoreCommand& ask, const std::string& asker);
  StoreAnswer look() const;

  void compact() {
    changes_.clear();
    kept_from_ = revision_ + 1;
  }
  // All that it had is lost; it counts from this revision on, perhaps beyond where it was.
  void begin_anew(int64_t revision);
  int64_t revision() const { return revision_; }
  uint64_t lives() const { return lives_; }  // what was on its way to one does not reach the next
  // From this revision on; nullopt: compacted.
  std::optional<std::vector<Change>> changes_from(int64_t revision) const;
  const std::optional<StoreKey>& leader() const { return leader_; }
  const std::optional<StoreKey>& table() const { return table_; }
  size_t gateways() const { return loads_.size(); }

 private:
  struct Lease {
    Duration ttl{};
    TimePoint until{};
  };
  struct Loads {
    std::string value;
    int64_t lease = 0;
  };
  void drop(int64_t lease);
  void set(std::optional<StoreKey>& key, std::optional<std::string> value);

  int64_t revision_ = 1, lease_count_ = 0;
  uint64_t lives_ = 1;
  std::map<int64_t, Lease> leases_;
  std::optional<StoreKey> leader_, table_;
  int64_t leader_lease_ = 0;
  std::map<std::string, Loads> loads_;
  std::vector<Change> changes_;
  int64_t kept_from_ = 1;  // of changes_
};

}  // namespace troupe::route::faults
