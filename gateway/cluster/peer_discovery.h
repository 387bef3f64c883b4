#pragma once

// Gossip peers from etcd: the other gateways registered there. A gateway that gave its lease up, or lost it,
// gets no more messages. All calls on the io_context's thread.

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
  // REQUIRES: `gossip` and `log` outlive it. `own_key`: this gateway's.
  PeerDiscovery(Gossip& gossip, std::string own_key, const Logger& log);

  // A gateway's current key and record. A malformed record is logged and ignored.
  void registered(const std::string& key, std::string_view record);
  void gone(const std::string& key);
  // The complete list: any other key is gone.
  void all(const std::vector<std::pair<std::string, std::string>>& records);

 private:
  bool keep(const std::string& key, std::string_view record);
  void publish();

  Gossip& gossip_;
  const std::string own_key_;
  const Logger& log_;
  std::map<std::string, Endpoint> found_;  // by key
};

}  // namespace troupe
