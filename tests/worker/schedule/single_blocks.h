#pragma once

// A Residency whose blocks come and go one at a time. It keeps the extent of each, as the prefix cache does.

#include <map>
#include <utility>

#include "worker/kv/residency.h"

namespace troupe::testing {

struct SingleBlocks : Residency {
  using Residency::Residency;
  void cached(BlockId block, int32_t index, HolderKind kind, Hash128 name) {
    held[block] = {index, Residency::cached({index, 1}, kind, name)};
  }
  void evicted(BlockId block) {
    const auto& [index, extent] = held.at(block);
    Residency::evicted({extent, index, {&block, 1}, {}});
  }
  std::map<BlockId, std::pair<int32_t, Extent>> held;
};

}  // namespace troupe::testing
