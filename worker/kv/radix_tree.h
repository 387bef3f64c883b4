#pragma once

// The radix tree of cached KV blocks. Its nodes are runs: blocks that follow one another. A prompt goes
// through a handful of runs (the system prompt, a persona, a conversation), however many blocks they have. A
// run is cut in two where prompts part, or where a request holds only its first blocks; so it is held, or
// not, as a whole. The tree does not know what a run is worth (prefix_cache.h does). Children are an
// intrusive list, youngest first. Pure; not thread-safe.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/block_hash.h"
#include "common/core/status.h"
#include "worker/kv/radix_index.h"
#include "worker/kv/residency.h"
#include "worker/kv/types.h"

namespace troupe {

// How a run was used: kept for the cache's choice of what to evict. It is the same for all its blocks, except
// that the last block became idle first: each lies idle a tick longer than the one before it.
struct RunUse {
  uint64_t idle_since = 0;  // ticks; of its first block, while unreferenced
  uint64_t used_at = 0;     // ticks
  float interval = 0;       // usual ticks between two uses; 0: used once
  uint32_t user = 0;        // the last one, shortened
  uint8_t use_count = 1;    // saturating
  bool shared = false;      // by more than one user
  bool returning = false;   // its user came back for it, or for what is before it
};

// Two lines of memory: what a look-up reads of a run that it goes through to the end, and the rest.
struct RadixNode {
  alignas(64) Hash128 first_hash;
  Hash128 last_hash;
  RadixNodeId parent = -1;  // below zero: none, it hangs on a root
  RadixNodeId first_child = -1;
  std::vector<BlockId> blocks;  // their hashes: RadixTree::hash_of()

  RadixNodeId previous_sibling = -1;  // younger
  RadixNodeId next_sibling = -1;
  int32_t depth = 0;       // blocks before it
  int32_t references = 0;  // by requests and pins; each holds all before the run, too
  int32_t pins = 0;        // of its references, those by pins
  // Above 0 for a tail: one block partly filled, without a hash and never with children.
  uint32_t tail_id_count : 26 = 0;
  bool has_ids : 1 = false;  // of tokens
  bool listed : 1 = false;   // among the leaves that may be evicted
  bool planned : 1 = false;  // of a set that is at home here
  // The tree lets go of it: it is found no more, nor is what comes behind it, and it goes with its last
  // reference. So it always has one.
  bool corrupt : 1 = false;
  uint32_t trust : 2 = 0;    // failures of its requests that it outlives (discard.cc), up to kTrust
  Residency::Extent extent;  // whose its blocks are
  RunUse use;

  static constexpr uint32_t kTrust = 2;  // of a run that a request has drawn tokens from

  int32_t count() const { return static_cast<int32_t>(blocks.size()); }
  bool is_tail() const { return tail_id_count > 0; }
  bool is_leaf() const { return first_child < 0; }
};
static_assert(sizeof(RadixNode) == 128);

class RadixTree {
 public:
  RadixTree(int32_t block_count, int32_t block_size);

  // References to runs hold until the next add() or split().
  RadixNode& run(RadixNodeId id) { return runs_[static_cast<size_t>(id)]; }
  const RadixNode& run(RadixNodeId id) const { return runs_[static_cast<size_t>(id)]; }
  // Prefetches the memory of a run that will be read soon.
  void prefetch(RadixNodeId id) const {
    const auto* const at = reinterpret_cast<const char*>(&run(id));
    for (size_t line = 0; line < sizeof(RadixNode); line += 64) __builtin_prefetch(at + line);
  }
  // Prefetches what holding a run needs beyond its first line of memory.
  static void prefetch_rest(const RadixNode& r) {
    __builtin_prefetch(&r.previous_sibling);
    const auto* const blocks = reinterpret_cast<const char*>(r.blocks.data());
    for (size_t at = 0; at < r.blocks.size() * sizeof(BlockId); at += 64) __builtin_prefetch(blocks + at);
  }
  // All ids below this one are runs, or were (those have no blocks).
  RadixNodeId id_end() const { return static_cast<RadixNodeId>(runs_.size()); }
  // The hash of a run's index-th block. REQUIRES: it is no tail.
  const Hash128& hash_of(const RadixNode& r, size_t index) const {
    return hashes_[static_cast<size_t>(r.blocks[index])];
  }
  // How many of the first hashes are those of a run's first blocks.
  size_t common_count(const RadixNode& r, std::span<const Hash128> hashes) const;
  // The hashes of a run's last blocks, as many as `out` has room for.
  void last_hashes(const RadixNode& r, std::span<Hash128> out) const;
  // The token ids of a run's index-th block; none where requests have no ids.
  std::span<const TokenId> ids_of(RadixNodeId id, int32_t index) const;
  // The child of `parent` (below zero: any run that hangs on a root) whose first block has this hash, or -1.
  RadixNodeId find_child(RadixNodeId parent, Hash128 hash) const;
  // The youngest child of `parent`; where that is below zero, of the root of this name.
  RadixNodeId first_child_of(RadixNodeId parent, Hash128 root) const;
  // The name of the root that a run hangs on. REQUIRES: it has no parent.
  const Hash128& root_name(RadixNodeId id) const {
    return roots_[static_cast<size_t>(-1 - run(id).parent)].name;
  }
  int32_t block_count() const { return block_count_; }

  struct Blocks {
    std::span<const Hash128> hashes;  // one a block, or none for a tail
    std::span<const BlockId> blocks;
    std::span<const TokenId> ids;  // of all of them, or none
  };
  // A new run behind the last block of `parent`, or at the root of this name; corrupt as `parent` is.
  // REQUIRES: `parent` has no child that begins so, but corrupt ones.
  RadixNodeId add(RadixNodeId parent, Hash128 root, const Blocks& blocks);
  // REQUIRES: it has no children and is no tail.
  void append(RadixNodeId id, const Blocks& blocks);
  // The first `count` blocks become a run of their own, which is returned, with a reference for each that the
  // rest has. The rest keeps its id and its children, so holds to its end stay valid. REQUIRES: 0 < count <
  // its blocks; not corrupt.
  RadixNodeId split(RadixNodeId id, int32_t count);
  // A look-up finds it no more. REQUIRES: all behind it is corrupt already.
  void mark_corrupt(RadixNodeId id);
  // Removes the last `count` blocks; a run without blocks is removed. REQUIRES: it has no children.
  void cut(RadixNodeId id, int32_t count);

  Status verify() const;

 private:
  // Runs without a parent hang on a root; it has a name and exists as long as it has children.
  struct Root {
    Hash128 name;
    RadixNodeId first_child = -1;
  };
  // A run's `parent` holds its root as a negative number.
  static RadixNodeId as_parent(int32_t root) { return -1 - root; }
  Root& root_of(const RadixNode& r) { return roots_[static_cast<size_t>(-1 - r.parent)]; }
  RadixNodeId& first_sibling(const RadixNode& r) {
    return r.parent >= 0 ? run(r.parent).first_child : root_of(r).first_child;
  }
  RadixNodeId new_run();
  void store(const Blocks& blocks);
  void store_hashes(const Blocks& blocks);
  int32_t find_or_add_root(Hash128 name);
  Status verify_run(RadixNodeId id) const;
  Status verify_children(RadixNodeId parent, RadixNodeId first_child, int32_t& listed_count) const;

  size_t block_size_;
  size_t blocks_max_;
  std::vector<RadixNode> runs_;
  std::vector<RadixNodeId> free_runs_;
  std::vector<TokenId> ids_;  // (blocks, block_size), or none at all
  // By block, as far as any was cached yet: a run that grows or is split moves no hashes.
  std::vector<Hash128> hashes_;
  RadixIndex by_first_hash_;
  std::vector<Root> roots_;
  std::vector<int32_t> free_roots_;
  absl::flat_hash_map<Hash128, int32_t> root_by_name_;
  int32_t block_count_ = 0;
};

// Whether a run is a tail whose ids are the beginning of `by`.
inline bool is_covered_tail(const RadixTree& tree, RadixNodeId id, std::span<const TokenId> by) {
  const auto known = tree.ids_of(id, 0);
  return tree.run(id).is_tail() && known.size() <= by.size() &&
         std::equal(known.begin(), known.end(), by.begin());
}

}  // namespace troupe
