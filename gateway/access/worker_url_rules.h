#pragma once

// Which workers an operator may add at run time (admin.worker_urls_allowed): whoever may add one gets the
// prompts of all clients sent to it. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe {

class WorkerUrlRules {
 public:
  // Each is a glob of host:port (`*` any characters, `?` one; without a port: any) such as
  // *.gpu.internal:31000 or 10.0.0.?:*, or a network such as 10.0.0.0/8, of hosts that are addresses. None:
  // all are allowed. The error names the rule.
  static StatusOr<WorkerUrlRules> parse(const std::vector<std::string>& rules);

  // Asked with a URL's host, and its host:port.
  bool allows(std::string_view host, std::string_view authority) const;

 private:
  struct Network {
    std::string bytes;  // of the address
    int bits = 0;
  };
  std::vector<std::string> globs_;
  std::vector<Network> networks_;
};

}  // namespace troupe
