#pragma once

// Upstreams of which each address is a worker of its own (`resolve: each`): their names are looked up at the
// start and every `upstream.resolve_secs`, addresses that are new join the fleet, and those that DNS has no
// more leave it as drained workers do. A name that was never found is looked up again after a second, then
// after twice as long each time, until the interval. The rules are route/fleet/name_addresses.h's. All calls
// on the io_context's thread.

#include <chrono>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/net/task_group.h"
#include "common/net/wakeable_timer.h"
#include "gateway/cluster/fleet.h"
#include "gateway/route/fleet/name_addresses.h"

namespace troupe {

class NameFollower {
 public:
  // `names`: with Upstream::each, each once. Looks up by `client.lookup`, if that is set, every
  // `client.resolve_interval`; zero: until a name is found, and never again.
  // REQUIRES: `fleet` and `log` outlive it.
  NameFollower(Executor executor, Fleet& fleet, const Logger& log, const std::vector<Upstream>& names,
               const HttpClientOptions& client);

  void start(TaskGroup& group);
  // Names that are new are looked up at once; the workers of those that are gone leave. Other settings of a
  // name (its key, its weight) are its workers' from now on.
  void change(const std::vector<Upstream>& names);

 private:
  struct Name {
    Upstream upstream;
    route::NameAddresses addresses;
  };
  Task<void> follow();
  Task<void> look_up_all();
  Task<std::vector<std::string>> addresses_of(Upstream upstream);
  Name* find(const std::string& id);
  void take(Name& name, const std::vector<std::string>& addresses);
  bool join(const Name& name, const std::string& address, bool comes_back);  // false: there is no room
  void leave(const Name& name, const std::string& address);

  const Executor executor_;
  Fleet& fleet_;
  const Logger& log_;
  const HttpClientOptions client_;
  std::vector<Name> names_;
  WakeableTimer timer_;
};

}  // namespace troupe
