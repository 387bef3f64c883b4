#pragma once

// The few slots with the smallest keys, without a scan of all: keys lie in blocks of 32 with each block's
// minimum beside, so an update touches one block and a query the minima and a few blocks: both are loops the
// compiler makes vector code of. Sizes up to some thousand slots are what it is for.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/core/random.h"

namespace troupe::route {

// Not thread-safe.
class LeastLoaded {
 public:
  static constexpr float kAbsent = std::numeric_limits<float>::infinity();

  void resize(size_t slots) {
    slots_ = static_cast<uint32_t>(slots);
    blocks_ = (slots_ + kBlock - 1) / kBlock;
    keys_.assign(static_cast<size_t>(blocks_) * kBlock, kAbsent);
    minima_.assign(blocks_, kAbsent);
  }
  // kAbsent: never to be found.
  void set(uint32_t slot, float key) {
    const uint32_t block = slot % blocks_;
    float& kept = keys_[block * kBlock + slot / blocks_];
    const float old = kept;
    kept = key;
    if (key <= minima_[block]) {
      minima_[block] = key;
    } else if (old == minima_[block]) {
      minima_[block] = block_minimum(block);
    }
  }

  // Writes up to out.size() distinct slots, the least first (that one exactly; the others are the least of
  // the best blocks, then the next within them). Equal keys fall at random. Returns how many.
  size_t find(std::span<uint32_t> out, Random& random) const;

 private:
  static constexpr uint32_t kBlock = 32;
  static constexpr size_t kBlocksLooked = 4;
  // Slots are dealt to blocks in turn, so that all blocks are of one size (or one less) and ties are fair.
  uint32_t slots_in(uint32_t block) const { return (slots_ - block + blocks_ - 1) / blocks_; }

  float block_minimum(uint32_t block) const {
    const float* keys = keys_.data() + size_t{block} * kBlock;
    float least = keys[0];
    for (size_t i = 1; i < kBlock; ++i) least = std::min(least, keys[i]);
    return least;
  }

  uint32_t slots_ = 0;
  uint32_t blocks_ = 0;
  std::vector<float> keys_;
  std::vector<float> minima_;
};

}  // namespace troupe::route
