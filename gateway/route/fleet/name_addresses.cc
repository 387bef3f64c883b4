#include "gateway/route/fleet/name_addresses.h"

#include <algorithm>
#include <utility>

namespace troupe::route {
namespace {

bool has(const std::vector<std::string>& list, const std::string& address) {
  return std::find(list.begin(), list.end(), address) != list.end();
}

}  // namespace

NameAddresses::Change NameAddresses::found(const std::vector<std::string>& addresses) {
  Change change;
  if (addresses.empty()) return change;
  std::vector<std::string> next;
  for (const std::string& address : known_) (has(addresses, address) ? next : change.left).push_back(address);
  std::vector<std::string> beyond;
  for (const std::string& address : addresses) {
    if (has(next, address) || has(beyond, address)) continue;
    if (next.size() == kMax) {
      beyond.push_back(address);
      continue;
    }
    next.push_back(address);
    change.joined.push_back(address);
  }
  change.left_out = beyond.size();
  known_ = std::move(next);
  return change;
}

}  // namespace troupe::route
