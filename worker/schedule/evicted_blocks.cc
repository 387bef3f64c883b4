#include "worker/schedule/evicted_blocks.h"

#include <algorithm>

namespace troupe {

EvictedBlocks::EvictedBlocks(int32_t block_count)
    : entries_(static_cast<size_t>(std::max(1, block_count)) * kWays) {}

std::span<EvictedBlock> EvictedBlocks::set_of(uint64_t key) {
  const size_t set = (key >> 32) * (entries_.size() / kWays) >> 32;
  return std::span(entries_).subspan(set * kWays, kWays);
}

void EvictedBlocks::add(const EvictedBlock& block) {
  const auto set = set_of(block.key);
  // An unused entry has been idle since 0.
  *std::min_element(set.begin(), set.end(), [](const EvictedBlock& a, const EvictedBlock& b) {
    return a.idle_since < b.idle_since;
  }) = block;
}

std::optional<EvictedBlock> EvictedBlocks::take(Hash128 hash) {
  for (EvictedBlock& entry : set_of(key_of(hash))) {
    if (entry.key != key_of(hash)) continue;
    const EvictedBlock found = entry;
    entry = EvictedBlock{};
    return found;
  }
  return std::nullopt;
}

}  // namespace troupe
