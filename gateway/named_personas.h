#pragma once

// A gateway's personas by name: the registry, what its folder has, and what keeps the published ones: etcd
// where gateways share their state, else a file, else memory.

#include <memory>
#include <string>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "common/etcd/etcd.h"
#include "common/net/task_group.h"
#include "gateway/cluster/persona_file.h"
#include "gateway/cluster/persona_folder.h"
#include "gateway/cluster/persona_keeper.h"
#include "gateway/cluster/persona_store.h"
#include "gateway/persona/registry.h"

namespace troupe {

struct PersonaSettings : PersonaOptions {
  std::string file;  // see PersonaFile; empty: published ones are kept in memory alone
  std::string dir;   // see persona_folder.h; empty: none
};

class NamedPersonas {
 public:
  struct Parts {
    Executor executor;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  NamedPersonas(const PersonaSettings& settings, const Parts& parts);

  PersonaRegistry& registry() { return registry_; }
  PersonaKeeper& keeper();
  // Published ones are kept in etcd from now on. Called before load().
  void share(const EtcdOptions& etcd, const std::string& prefix);
  // Reads folder and file. A published persona goes before the folder's of the same name and owner.
  Status load(const OwnerOfTenant& owner_of);
  void start(TaskGroup& group);

 private:
  const Parts parts_;
  const std::string dir_;
  PersonaRegistry registry_;
  PersonaMemory memory_{registry_};
  std::unique_ptr<PersonaFile> file_;    // null: none
  std::unique_ptr<PersonaStore> store_;  // null: this gateway alone has them
};

}  // namespace troupe
