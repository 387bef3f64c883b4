#pragma once

// The workers that etcd tells of, in the fleet. Who registers joins at once. Who is registered no more leaves
// only once its probes say the same: etcd may have been away while leases ran out, and a worker that drains
// still streams. Workers that the configuration names never leave. All calls on the io_context's thread.

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/log.h"
#include "common/etcd/keys.h"
#include "gateway/cluster/fleet.h"

namespace troupe {

class WorkerDiscovery {
 public:
  // Both outlive it. `configured`: workers known without etcd; where there are none, the fleet knows nothing
  // before all() or untold().
  WorkerDiscovery(Fleet& fleet, const std::vector<Endpoint>& configured, const Logger& log);

  // A worker's key and record as they are now. What is no record is logged and not heeded.
  void registered(const std::string& key, std::string_view record);
  void gone(const std::string& key);
  // All there are: any other key is gone.
  void all(const std::vector<std::pair<std::string, std::string>>& records);
  // etcd cannot be asked: there may be some, and there may be none.
  void untold() { fleet_.told_members(); }
  // Now and then: those that have gone and are dead leave.
  void tend();

  size_t size() const { return registered_.size(); }

 private:
  struct Worker {
    WorkerRecord record;
    std::string id;
  };
  bool elsewhere(const std::string& id) const;

  Fleet& fleet_;
  const Logger& log_;
  std::set<std::string> configured_;          // ids
  std::map<std::string, Worker> registered_;  // by key
  std::set<std::string> leaving_;             // ids
};

}  // namespace troupe
