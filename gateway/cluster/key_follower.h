#pragma once

// Follows the keys of a prefix in etcd: reads which there are, fetches the values that its listener lacks,
// and watches from there on; anew where the watch ends, and where it fell silent, as it may be half open. All
// calls on the io_context's thread.

#include <string>
#include <vector>

#include "common/core/status.h"
#include "common/etcd/etcd.h"
#include "common/net/task_group.h"

namespace troupe {

class KeyFollower {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // A reading begins.
    virtual void begin_reading() {}
    // `all`: the keys that there are, without values. Returns those whose values are wanted.
    virtual std::vector<std::string> reconcile(const etcd::TxnAnswer& all) = 0;
    virtual void take(const etcd::KeyValue& kv, bool deleted) = 0;
    // Everything up to `revision` was taken; 0: all that the reading found.
    virtual void caught_up(int64_t /*revision*/) {}
    // The following failed, and begins anew in a while; or the watch stands.
    virtual void failed(const Status& why) = 0;
    virtual void went_well() = 0;
  };
  // `etcd` and `listener` outlive this. `prefix`: the beginning of all keys.
  KeyFollower(Executor executor, EtcdClient& etcd, std::string prefix, Listener& listener);

  // Endless: cancel it to stop.
  Task<void> run();

 private:
  Task<Status> read_and_watch();
  Task<Status> fetch(std::vector<std::string> keys);

  const Executor executor_;
  EtcdClient& etcd_;
  const std::string prefix_;
  Listener& listener_;
};

}  // namespace troupe
