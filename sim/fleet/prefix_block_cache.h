#pragma once

// The prefixes of sets, as far as a gateway needs them to have a set computed where its requests will go: the
// simulator's gateway/cluster/prefix_text_cache.h, with ids of blocks for text. One for all gateways.

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <vector>

#include "common/core/block_hash.h"
#include "sim/fleet/simulation_options.h"
#include "sim/trace/trace_request.h"

namespace troupe::sim {

class PrefixBlockCache {
 public:
  // The part of a request's prompt that belongs to its set.
  struct Prefix {
    std::vector<uint64_t> blocks;  // ids of its full blocks
    int32_t tokens = 0;
  };
  // Keeps as many sets as a router remembers; none where no fault makes a node begin empty, or leave.
  explicit PrefixBlockCache(const SimulationOptions& options);

  bool active() const { return active_; }
  void keep(const Hash128& set, const TraceRequest& request);
  const Prefix* find(const Hash128& set) const;
  // In the order in which they came: a hash map's own differs from run to run.
  const std::vector<Hash128>& sets() const { return order_; }

 private:
  size_t sets_max_;
  bool active_;
  absl::flat_hash_map<Hash128, Prefix> prefixes_;
  std::vector<Hash128> order_;
};

}  // namespace troupe::sim
