#pragma once

// The workers that an operator may add at run time (admin.worker_urls_allowed). To add one is to have the
// prompts of all clients sent to it, and the gateway's requests to any address that its network reaches. So
// without rules only a local network's hosts can be added: private addresses, names that no public resolver
// has, and what the configuration names anyway. A server elsewhere is for `upstreams`, or for a rule. Pure.

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe {

class WorkerUrlRules {
 public:
  // Each is a glob of host:port (`*` any characters, `?` one; without a port: any) such as
  // *.gpu.internal:31000 or 10.0.0.?:*, or a network such as 10.0.0.0/8, of hosts that are addresses. None:
  // those of a local network (core/host_scope.h), of which addresses of the link and metadata services are
  // none. The error names the rule.
  static StatusOr<WorkerUrlRules> parse(const std::vector<std::string>& rules);

  // Whatever the rules are. `authority`: host:port.
  void allow(std::string_view authority);
  bool is_default() const { return globs_.empty() && networks_.empty(); }
  // Asked with a URL's host, and its host:port.
  bool allows(std::string_view host, std::string_view authority) const;

 private:
  struct Network {
    std::string bytes;  // of the address
    int bits = 0;
  };
  std::vector<std::string> globs_;
  std::vector<Network> networks_;
  std::set<std::string, std::less<>> named_;  // in lower case
};

}  // namespace troupe
