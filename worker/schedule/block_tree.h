#pragma once

// The tree of cached KV blocks: who follows whom, under which hash, with which token ids. Knows nothing of
// who uses a block or of what it is worth (prefix_cache.h). Nodes live in a vector indexed by block; children
// are an intrusive list, youngest first. Pure; not thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/block_hash.h"
#include "common/core/status.h"
#include "worker/schedule/block_pool.h"

namespace troupe {

struct BlockNode {
  Hash128 hash;         // zero: a tail, partly filled and never with children
  Hash128 parent_hash;  // names the sibling list where there is no parent block
  BlockId parent = -1;  // -1: root
  BlockId first_child = -1;
  BlockId previous_sibling = -1;  // younger
  BlockId next_sibling = -1;
  int32_t child_count = 0;
  int32_t id_count = 0;

  // The cache's own, for its choice of whom to evict.
  uint64_t idle_since = 0;  // ticks; while unreferenced
  uint64_t user = 0;        // the last one
  uint64_t used_at = 0;     // ticks
  float interval = 0;       // usual ticks between two uses; 0: used once
  uint8_t use_count = 1;    // saturating
  bool shared = false;      // by more than one user
  bool returning = false;   // its user came back for it, or for the block before it
  bool listed = false;      // among the leaves that may be evicted

  bool is_tail() const { return hash.is_zero(); }
};

class BlockTree {
 public:
  BlockTree(int32_t block_count, int32_t block_size);

  BlockNode& node(BlockId block) { return nodes_[static_cast<size_t>(block)]; }
  const BlockNode& node(BlockId block) const { return nodes_[static_cast<size_t>(block)]; }
  std::span<const TokenId> ids_of(BlockId block) const;
  BlockId find(Hash128 hash) const;
  // The youngest child of a block, or of a root that is only a name.
  BlockId first_child_of(Hash128 parent) const;
  int32_t size() const { return size_; }

  // REQUIRES: `block` is not in the tree, no other block has its hash, and `ids` fit a block.
  void add(BlockId block, Hash128 hash, Hash128 parent, std::span<const TokenId> ids);
  // REQUIRES: it has no children.
  void remove(BlockId block);

  // Against the pool's word on what is cached and referenced.
  Status verify(const BlockPool& pool) const;

 private:
  BlockId& first_sibling(const BlockNode& n);
  Status verify_node(BlockId block, const BlockPool& pool) const;

  size_t block_size_;
  std::vector<BlockNode> nodes_;
  std::vector<TokenId> ids_;  // (blocks, block_size), or none at all
  absl::flat_hash_map<Hash128, BlockId> by_hash_;
  absl::flat_hash_map<Hash128, BlockId> roots_;  // first child of each root
  int32_t size_ = 0;
};

}  // namespace troupe
