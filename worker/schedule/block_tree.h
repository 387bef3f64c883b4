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
#include "worker/schedule/block_index.h"
#include "worker/schedule/block_pool.h"

namespace troupe {

// A line of memory: a request goes through all of its blocks when it comes and when it ends.
struct alignas(64) BlockNode {
  Hash128 hash;         // zero: a tail, partly filled and never with children
  BlockId parent = -1;  // below zero: none, it hangs on a root
  BlockId first_child = -1;
  BlockId previous_sibling = -1;  // younger
  BlockId next_sibling = -1;
  int32_t depth = 0;  // blocks before it

  // The cache's own, for its choice of whom to evict.
  uint32_t user = 0;        // the last one, shortened
  uint64_t idle_since = 0;  // ticks; while unreferenced
  uint64_t used_at = 0;     // ticks
  float interval = 0;       // usual ticks between two uses; 0: used once
  uint32_t id_count : 20 = 0;
  uint32_t use_count : 8 = 1;  // saturating
  bool shared : 1 = false;     // by more than one user
  bool returning : 1 = false;  // its user came back for it, or for the block before it
  bool listed : 1 = false;     // among the leaves that may be evicted

  bool is_tail() const { return hash.is_zero(); }
  bool is_leaf() const { return first_child < 0; }
};
static_assert(sizeof(BlockNode) == 64);

class BlockTree {
 public:
  BlockTree(int32_t block_count, int32_t block_size);

  BlockNode& node(BlockId block) { return nodes_[static_cast<size_t>(block)]; }
  const BlockNode& node(BlockId block) const { return nodes_[static_cast<size_t>(block)]; }
  std::span<const TokenId> ids_of(BlockId block) const;
  BlockId find(Hash128 hash) const {
    return by_hash_.find(hash, [&](BlockId block) { return node(block).hash == hash; });
  }
  // How many of the leading `hashes`, which are a chain, are there: the tree is closed under "the block
  // before it". `guess`: the answer of the last time; near it the search is short.
  int32_t find_leading(std::span<const Hash128> hashes, int32_t guess) const;
  // Their blocks, head first. REQUIRES: so many are there, says find_leading().
  void find_path(std::span<const Hash128> hashes, std::vector<BlockId>& out) const;
  // Fetches the memory that find() or add() of a hash will need, or node() of a block.
  void prefetch(Hash128 hash) const { by_hash_.prefetch(hash); }
  void prefetch(BlockId block) const { __builtin_prefetch(&node(block)); }
  // The youngest child of a block, or of a root that is only a name.
  BlockId first_child_of(Hash128 parent) const;
  int32_t size() const { return size_; }

  struct NewBlock {
    BlockId block = -1;
    Hash128 hash;
    Hash128 parent;             // of the block before it; what names no block is a root
    BlockId parent_block = -1;  // that block where it is known; else it is looked for
    std::span<const TokenId> ids;
  };
  // REQUIRES: `block` is not in the tree, no other block has its hash, and `ids` fit a block.
  void add(const NewBlock& block);
  // REQUIRES: it has no children.
  void remove(BlockId block);

  // Against the pool's word on what is cached and referenced.
  Status verify(const BlockPool& pool) const;

 private:
  bool holds_at(Hash128 hash, int32_t depth) const {
    const BlockId block = find(hash);
    return block >= 0 && node(block).depth == depth;
  }
  // What blocks without a parent hang on: a name, for as long as some do.
  struct Root {
    Hash128 name;
    BlockId first_child = -1;
  };
  // How a block's parent names the root instead.
  static BlockId as_parent(int32_t root) { return -1 - root; }
  Root& root_of(const BlockNode& n) { return roots_[static_cast<size_t>(-1 - n.parent)]; }
  int32_t find_or_add_root(Hash128 name);
  BlockId& first_sibling(const BlockNode& n) {
    return n.parent >= 0 ? node(n.parent).first_child : root_of(n).first_child;
  }
  Status verify_roots(const BlockPool& pool, int32_t parentless_count) const;
  Status verify_node(BlockId block, const BlockPool& pool) const;

  size_t block_size_;
  std::vector<BlockNode> nodes_;
  std::vector<TokenId> ids_;  // (blocks, block_size), or none at all
  BlockIndex by_hash_;
  std::vector<Root> roots_;
  std::vector<int32_t> free_roots_;
  absl::flat_hash_map<Hash128, int32_t> root_by_name_;
  int32_t size_ = 0;
};

}  // namespace troupe
