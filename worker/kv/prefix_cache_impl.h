#pragma once

// The state of a PrefixCache, shared by prefix_cache.cc (look-up, holds, insertion), eviction.cc, pinning.cc,
// discard.cc and conversations.cc.

#include <array>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "worker/kv/eviction_score.h"
#include "worker/kv/ghost_list.h"
#include "worker/kv/prefix_cache.h"
#include "worker/kv/radix_tree.h"

namespace troupe {

// The time since when the last block of a run lies idle.
inline uint64_t last_idle_since(const RadixNode& r) {
  return r.use.idle_since - static_cast<uint64_t>(r.count() - 1);
}

struct PrefixCache::Impl {
  // Trust in blocks that a request has drawn tokens from.
  static constexpr uint32_t kTrust = 2;

  Impl(BlockPool* p, int32_t size, Residency* r)
      : block_size(static_cast<size_t>(size)),
        pool(p),
        residency(r),
        tree(p->total_count(), size),
        evicted(p->total_count()),
        value(p->total_count()) {}

  void list(RadixNodeId id);
  void unlist(RadixNodeId id);
  void list_if_leaf(RadixNodeId id) {
    if (tree.run(id).is_leaf() && tree.run(id).references == 0) list(id);
  }
  template <typename Use>  // or what is remembered of one
  IdleClass class_of(const Use& use) const {
    if (use.shared) return value.shared_class(static_cast<double>(use.interval));
    return use.returning ? kReturningClass : kNewClass;
  }
  EvictionScore::Ages ages_of(const RadixNode& r) const { return {now - r.use.idle_since, r.count()}; }
  RadixNodeId split(RadixNodeId id, int32_t count);
  void take(RadixNodeId id, uint32_t user);
  void pin(RadixNodeId id);
  void unpin(RadixNodeId id);
  void drop(RadixNodeId id);
  void idle(RadixNodeId id);
  RunUse first_use(const LockedPrefix& path, uint32_t user) const;
  RunUse use_behind(const RunUse& before) const;
  void recall(RunUse& use, const GhostList::Found& found);
  bool alike(const RunUse& a, const RunUse& b) const;
  void adopt(LockedPrefix& path, RadixNodeId known, const Blocks& blocks);
  void add(LockedPrefix& path, const Blocks& blocks);
  // Blocks behind a path up to the end-th of their prompt, used alike.
  struct Row {
    RunUse use;
    size_t end = 0;
  };
  void place(LockedPrefix& path, const Blocks& blocks, const Row& row);
  void learn();
  void retire_planned();
  void drop_covered_tails(const LockedPrefix& path, Hash128 root, std::span<const TokenId> by);
  Hash128 hash_at(RadixNodeId id, size_t index) const;
  int32_t evict_from(RadixNodeId id, int32_t count);
  void cut(RadixNodeId id, int32_t count);
  using Leaves = std::array<absl::btree_set<std::pair<uint64_t, RadixNodeId>>, kIdleClassCount>;
  Leaves& leaves_beside(const RadixNode& r) { return r.planned ? planned_leaves : leaves; }
  RadixNodeId least_of(const Leaves& lists);
  RadixNodeId least_valuable() {
    const RadixNodeId id = least_of(leaves);
    return id >= 0 || planned_count == 0 ? id : least_of(planned_leaves);
  }
  Status verify_leaves() const;
  // discard.cc
  struct Discard {
    // REQUIRES: `match` is the longest of the chain.
    void chain(const Match& match, Hash128 root, std::span<const TokenId> ids);
    void mark_corrupt(RadixNodeId id);
    void mark_run_corrupt(RadixNodeId id);
    void cut_idle(RadixNodeId id);
    Impl& cache;
  };
  // conversations.cc
  struct Branch;
  std::optional<Branch> branch_of(RadixNodeId id) const;  // of a run that is a conversation's
  RadixNodeId tail_behind(RadixNodeId id) const;
  Conversation describe(const Branch& branch) const;
  void collect_blocks(const Branch& branch, Conversation& out) const;

  size_t block_size;  // tokens
  BlockPool* pool;
  Residency* residency;
  RadixTree tree;
  absl::flat_hash_map<Hash128, RequestId> announced;
  // By (idle_since, run): the first is the one idle for longest. No other run's ticks lie between those of a
  // run's blocks, so its place stays while it loses its last blocks.
  Leaves leaves, planned_leaves;
  GhostList evicted;
  EvictionScore value;
  uint64_t now = 0;  // ticks: blocks that became idle
  size_t lesson_count = 0;
  int32_t pinned_count = 0;
  int32_t planned_count = 0;         // runs
  std::vector<Hash128> gone_hashes;  // scratch
  uint64_t change_count = 0;
  Counts counts;
};

}  // namespace troupe
