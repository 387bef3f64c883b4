#include "sim/fleet/prefix_block_cache.h"

#include <algorithm>
#include <utility>

namespace troupe::sim {

namespace {

bool begins_empty_or_leaves(const Fault& fault) {
  return fault.kind == Fault::Kind::kReturn || fault.kind == Fault::Kind::kJoin ||
         fault.kind == Fault::Kind::kDrain;
}

}  // namespace

PrefixBlockCache::PrefixBlockCache(const SimulationOptions& options)
    : sets_max_(options.router.memory.sets_max),
      active_(options.handover_s > 0 && nodes_report(options) &&
              std::any_of(options.faults.begin(), options.faults.end(), begins_empty_or_leaves)) {}

void PrefixBlockCache::keep(const Hash128& set, const TraceRequest& request) {
  if (!active_ || request.set == 0 || request.prefix_tokens <= 0) return;
  if (prefixes_.contains(set) || prefixes_.size() >= sets_max_) return;
  const auto full =
      std::min(static_cast<size_t>(request.prefix_tokens / request.block_tokens), request.blocks.size());
  const auto end = request.blocks.begin() + static_cast<std::ptrdiff_t>(full);
  prefixes_.emplace(set, Prefix{{request.blocks.begin(), end}, request.prefix_tokens});
  order_.push_back(set);
}

const PrefixBlockCache::Prefix* PrefixBlockCache::find(const Hash128& set) const {
  const auto found = prefixes_.find(set);
  return found == prefixes_.end() ? nullptr : &found->second;
}

}  // namespace troupe::sim
