#pragma once

// Pins in etcd, under <prefix>/pins/<Pin::id>, each under a lease that ends when the pin does: a gateway that
// restarts, or a second one, lists and keeps what was pinned through another, and what an owner may pin is
// bounded by all that the owner has. Two tasks, invisible to requests: one reads and watches, the other
// writes what changes here. The rules are route/placement/pin_sync.h's, the records pin_record.h's. While
// etcd is away the gateway goes on with the pins that it knows. Every write is a transaction on the revision
// that it follows, so that gateways cannot undo what has not reached them. All calls on the io_context's
// thread.
//
// Kept by one gateway alone: a pin whose request has a cache_salt of the client's own, which may not become
// known, and one whose record is longer than kPinRecordBytesMax.

#include <absl/container/flat_hash_map.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/etcd/etcd.h"
#include "common/etcd/keys.h"
#include "common/net/task_group.h"
#include "common/net/wakeable_timer.h"
#include "gateway/cluster/key_follower.h"
#include "gateway/cluster/pin_reconciler.h"
#include "gateway/cluster/pin_record.h"
#include "gateway/route/placement/pin_sync.h"

namespace troupe {

class PinStore final : private KeyFollower::Listener {
 public:
  struct Parts {
    Executor executor;
    PinReconciler& pins;  // its registry's on_change is set here
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
    std::string writer;  // name of this gateway's life, in its records
  };
  // REQUIRES: etcd has members.
  PinStore(const EtcdOptions& etcd, const std::string& prefix, const Parts& parts);
  ~PinStore() override;
  PinStore(const PinStore&) = delete;
  PinStore& operator=(const PinStore&) = delete;

  // Starts endless tasks in `group`: cancel the group to stop them.
  void start(TaskGroup& group);
  // REQUIRES: its tasks have ended. Writes what changed last, no longer than until `by` or a few time-outs of
  // etcd's after it; what it cannot write is lost to the other gateways.
  Task<void> flush(TimePoint by);

 private:
  struct Lease {
    int64_t id = 0;
    int64_t until_unix_s = 0;
  };
  void begin_reading() override;
  std::vector<std::string> reconcile(const etcd::TxnAnswer& all) override;
  void take(const etcd::KeyValue& kv, bool deleted) override;
  void caught_up(int64_t revision) override;
  void failed(const Status& why) override;
  void went_well() override;
  Task<void> write();
  Task<Status> write_next();
  Task<Status> write_one(route::PinSync::Write write);
  Task<StatusOr<bool>> commit(Hash128 id, const etcd::Txn& txn);
  Task<Status> put(route::PinSync::Write write, PinRecord record);
  Task<Status> remove(route::PinSync::Write write);
  Task<Status> read(Hash128 id);
  Task<StatusOr<Lease>> lease_for(Hash128 id, const PinRecord& record);
  Task<void> revoke(int64_t lease);
  Task<void> give_back_grant(Hash128 id);
  Task<void> take_refusal(Hash128 id, const etcd::TxnAnswer& answer);
  void adopt(const Hash128& id, PinRecord record);
  std::string key_of(const Hash128& id) const;
  std::optional<Hash128> id_of(std::string_view key) const;

  const std::string keys_;  // begin of all
  PinReconciler& pins_;
  const Clock& clock_;
  const Logger& log_;
  EtcdClient etcd_;
  route::PinSync sync_;
  const std::string writer_;                     // PinRecord::writer
  absl::flat_hash_map<Hash128, Lease> leases_;   // of pins in etcd
  absl::flat_hash_map<Hash128, Lease> granted_;  // for writes that are not done yet
  WakeableTimer changes_;                        // write()'s sleep
  KeyFollower follower_;
  Counter& failed_;
  bool fails_ = false;  // logged
};

}  // namespace troupe
