#pragma once

// KV memory that remembers what was written: every slot names the whole context it was computed for. Reading
// a request's context back through its block table then shows any mix-up of prefixes, use after eviction,
// double free or missing token at the moment a real model would have computed nonsense.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/core/block_hash.h"
#include "worker/schedule/batch.h"

namespace troupe::testing {

class FakeKv {
 public:
  FakeKv(int32_t block_size, int32_t block_count)
      : block_size_(block_size), slots_(static_cast<size_t>(block_size) * static_cast<size_t>(block_count)) {}

  // A token after which nothing is a number.
  static constexpr TokenId kNanToken = 23;
  static constexpr Hash128 kNan{~uint64_t{0}, ~uint64_t{0}};

  // Context after each further token; what a slot holds.
  static Hash128 extend(Hash128 context, TokenId token) {
    if (context == kNan || token == kNanToken) return kNan;
    return chain_hash(context, std::span<const int32_t>(&token, 1));
  }

  // The context that position `position` of the table holds.
  Hash128 read(std::span<const BlockId> blocks, int32_t position) const {
    return slots_[slot(blocks, position)];
  }

  // The copies that a step makes before its items.
  void copy(std::span<const KvCopy> copies) {
    for (const KvCopy& copy : copies) {
      const auto size = static_cast<ptrdiff_t>(block_size_);
      std::copy_n(slots_.begin() + copy.from * size, size, slots_.begin() + copy.to * size);
    }
  }

  // The block's memory fails: nothing in it is a number.
  void mark_corrupt(BlockId block) {
    std::fill_n(slots_.begin() + static_cast<ptrdiff_t>(block) * block_size_, block_size_, kNan);
  }

  // Computes the item as a model would, from what the table holds; returns the context after its last id.
  Hash128 compute(const BatchItem& item, Hash128 root) {
    Hash128 context = item.start == 0 ? root : read(item.blocks, item.start - 1);
    for (size_t i = 0; i < item.ids.size(); ++i) {
      context = extend(context, item.ids[i]);
      slots_[slot(item.blocks, item.start + static_cast<int32_t>(i))] = context;
    }
    return context;
  }

 private:
  size_t slot(std::span<const BlockId> blocks, int32_t position) const {
    const BlockId block = blocks[static_cast<size_t>(position / block_size_)];
    return static_cast<size_t>(block) * static_cast<size_t>(block_size_) +
           static_cast<size_t>(position % block_size_);
  }

  int32_t block_size_;
  std::vector<Hash128> slots_;
};

}  // namespace troupe::testing
