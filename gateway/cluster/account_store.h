#pragma once

// The grants of clients' limits that all gateways together have got, in etcd, under <prefix>/accounts/<id>: a
// slice is taken by exchanging the record (route/admission/account_record.h) for the next one, only where it
// is still what was read. A call whose outcome is unknown may have taken a slice, which is then of no use to
// anybody in this window: never is more let in for it. Records are under a lease of the gateway that wrote
// them last, for two days, so that unused accounts expire.
//
// All calls on the io_context's thread.

#include <string>

#include "common/core/block_hash.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/etcd/etcd.h"
#include "common/etcd/keys.h"
#include "common/net/task_group.h"
#include "gateway/route/admission/account_record.h"

namespace troupe {

class AccountStore {
 public:
  struct Parts {
    Executor executor;
    Metrics& metrics;
    const Clock& clock;
  };
  // REQUIRES: etcd has members.
  AccountStore(EtcdOptions etcd, const std::string& prefix, const Parts& parts);

  // Takes what is wanted and a slice more, or nothing. `gateways`: that share the limits.
  Task<StatusOr<route::AccountGrant>> take(Hash128 id, route::AccountWant want, route::AccountLimits limits,
                                           int64_t gateways);
  // Gives it back, or it is lost for its window.
  Task<void> give_back(Hash128 id, route::AccountGrant back);

 private:
  struct Step {
    route::AccountRecord record;
    int64_t revision = 0;
  };
  Task<StatusOr<Step>> read(std::string key);
  Task<StatusOr<bool>> exchange(std::string key, Step step);
  Task<Status> keep_lease();

  const std::string keys_;
  EtcdClient etcd_;
  const Clock& clock_;
  int64_t lease_ = 0;
  TimePoint lease_until_{};  // when the next one is due
  Counter& failed_;
};

}  // namespace troupe
