#pragma once

// Takes blocks that may be corrupt out of the prefix cache: PrefixCache::discard(). Pure; not thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/core/block_hash.h"
#include "worker/kv/eviction.h"
#include "worker/kv/prefix_blocks.h"
#include "worker/kv/radix_tree.h"

namespace troupe {

class Discard {
 public:
  // Both live longer.
  Discard(RadixTree& tree, Evictor& evictor, int32_t block_size)
      : tree_(tree), evictor_(evictor), block_size_(static_cast<size_t>(block_size)) {}

  // A request with this chain ended without a token. REQUIRES: `match` is the longest of the chain.
  void chain(const PrefixMatch& match, Hash128 root, std::span<const TokenId> ids);

 private:
  void mark_corrupt(RadixNodeId id);
  void mark_run_corrupt(RadixNodeId id);

  RadixTree& tree_;
  Evictor& evictor_;
  size_t block_size_;  // tokens
};

}  // namespace troupe
