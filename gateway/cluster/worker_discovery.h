#pragma once

// Workers from etcd as members of the fleet. A registered worker joins at once. An unregistered one leaves
// only once its probes fail as well: etcd may have been away while leases ran out, and a worker that drains
// still streams. Configured workers never leave. All calls on the io_context's thread.

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
  // REQUIRES: `fleet` and `log` outlive it. `configured`: ids of the workers known without etcd; if empty,
  // the fleet's members are unknown before all() or unreachable().
  WorkerDiscovery(Fleet& fleet, const std::vector<std::string>& configured, const Logger& log);

  // A worker's current key and record. A malformed record is logged and ignored.
  void registered(const std::string& key, std::string_view record);
  void gone(const std::string& key);
  // The complete list: any other key is gone.
  void all(const std::vector<std::pair<std::string, std::string>>& records);
  // etcd cannot be reached: the fleet goes on with the workers it has.
  void unreachable() { fleet_.initial_probing().members_known(); }
  // Called now and then: removes workers that are unregistered and dead.
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
