#pragma once

// The other gateways that etcd tells of, as peers to gossip with. Who has given its lease up, or lost it, is
// told nothing more. All calls on the io_context's thread.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/log.h"
#include "common/etcd/keys.h"
#include "gateway/cluster/gossip.h"

namespace troupe {

class PeerDiscovery {
 public:
  // Both outlive it. `own_key`: this gateway's.
  PeerDiscovery(Gossip& gossip, std::string own_key, const Logger& log);

  // A gateway's key and record as they are now. What is no record is logged and not heeded.
  void registered(const std::string& key, std::string_view record);
  void gone(const std::string& key);
  // All there are: any other key is gone.
  void all(const std::vector<std::pair<std::string, std::string>>& records);

 private:
  bool keep(const std::string& key, std::string_view record);
  void tell();

  Gossip& gossip_;
  const std::string own_key_;
  const Logger& log_;
  std::map<std::string, Endpoint> found_;  // by key
};

}  // namespace troupe
