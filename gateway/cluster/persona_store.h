#pragma once

// Published personas in etcd, under <prefix>/personas/<owner>/<name> (persona/record.h): all gateways have
// them, and see a change as it comes. Every write is a transaction on the revision that it follows, so that
// two gateways make no version twice. While etcd is away requests get the personas that are known, and none
// is published. All calls on the io_context's thread.

#include <absl/container/flat_hash_map.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/etcd/etcd.h"
#include "common/net/task_group.h"
#include "gateway/cluster/key_follower.h"
#include "gateway/cluster/persona_keeper.h"

namespace troupe {

class PersonaStore final : public PersonaKeeper, private KeyFollower::Listener {
 public:
  struct Parts {
    Executor executor;
    PersonaRegistry& registry;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  // REQUIRES: etcd has members.
  PersonaStore(const EtcdOptions& etcd, const std::string& prefix, const Parts& parts);

  // One endless task in `group`.
  void start(TaskGroup& group);
  Task<Status> keep(Persona persona) override;

 private:
  std::vector<std::string> reconcile(const etcd::TxnAnswer& all) override;
  void take(const etcd::KeyValue& kv, bool deleted) override;
  void failed(const Status& why) override;
  void went_well() override;
  void forget(const std::string& key);
  std::string key_of(std::string_view owner, std::string_view name) const;
  // Owner and name; nullopt: it is none of these keys.
  std::optional<PersonaRegistry::Key> parts_of(std::string_view key) const;

  const std::string keys_;  // begin of all
  const Parts parts_;
  EtcdClient etcd_;
  KeyFollower follower_;
  absl::flat_hash_map<std::string, int64_t> revisions_;  // of what is there, by key
  Counter& failed_;
  bool fails_ = false;  // logged
};

}  // namespace troupe
