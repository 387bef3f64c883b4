#include "gateway/route/placement/shared_loads.h"

#include <absl/container/flat_hash_map.h>

#include <utility>

namespace troupe::route {
namespace {
// The most gateways that settings allow.
constexpr size_t kOthersMax = 1024;
}  // namespace

void SharedLoads::observe(const Hash128& gateway, SetLoads loads, TimePoint now) {
  if (others_.size() >= kOthersMax && !others_.contains(gateway)) return;
  others_.insert_or_assign(gateway, Sample{std::move(loads), now});
}

SetLoads SharedLoads::sum(SetLoads own, TimePoint now) {
  std::erase_if(others_, [&](const auto& entry) { return now > entry.second.received_at + keep_; });
  if (others_.empty()) return own;
  absl::flat_hash_map<Hash128, size_t> at;
  at.reserve(own.sets.size());
  for (size_t i = 0; i < own.sets.size(); ++i) at.emplace(own.sets[i].set, i);
  for (const auto& [gateway, sample] : others_) {
    for (const SetLoad& load : sample.loads.sets) {
      const auto [found, added] = at.try_emplace(load.set, own.sets.size());
      if (added) {
        own.sets.push_back(load);
        continue;
      }
      SetLoad& sum = own.sets[found->second];
      sum.work += load.work;
      if (sum.tokens == 0) sum.tokens = load.tokens;
    }
  }
  return own;
}

}  // namespace troupe::route
