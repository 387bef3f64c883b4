#pragma once

// KV blocks that outlive the request that computed them: a tree, in which a block is named by the chained
// hash of everything up to and including it. A leaf may also be partly filled (the tail of a conversation):
// it has no hash, and is found by its parent and its token ids. Eviction takes unreferenced leaves only, that
// of the least learned value first (reuse_value.h). Also knows blocks in the making: a block that a running
// request will complete is announced, so that a second request for the same prefix waits instead of computing
// it again. Pure; not thread-safe.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/status.h"
#include "worker/schedule/block_pool.h"
#include "worker/schedule/residency.h"

namespace troupe {

class PrefixCache {
 public:
  // `residency` (may be null) is told of every full block that goes; who names what comes is the caller.
  PrefixCache(BlockPool* pool, int32_t block_size, Residency* residency = nullptr);
  ~PrefixCache();

  // `user`: whom a request is of (its session), as far as the cache is concerned. What many users share is
  // worth more than what one came back for.
  struct Block {
    BlockId block = -1;
    Hash128 hash;                  // zero: a tail
    Hash128 parent;                // hash of the block before it; what names no block is a root (a salt)
    std::span<const TokenId> ids;  // block_size of them, or none; of a tail: fewer, at least one
    uint64_t user = 0;
    BlockId parent_block = -1;  // the block before it where the caller knows it; else it is looked for
  };
  struct Counts {
    int64_t evicted = 0;         // blocks
    int64_t evicted_shared = 0;  // of those, used by more than one user
  };

  // The full block that holds `hash`'s KV, or -1. Does not touch recency.
  BlockId find(Hash128 hash) const;
  // How many of the leading `hashes`, which are a chain, are held: what is held is closed under "the block
  // before it". `guess`: the answer of the last time; near it the search is short.
  int32_t find_leading(std::span<const Hash128> hashes, int32_t guess) const;
  // Their blocks, head first. REQUIRES: so many are held, says
  // find_leading().
  void find_path(std::span<const Hash128> hashes, std::vector<BlockId>& out) const;
  // A child of `parent` (full or tail, in use or not) that begins as `ids` does: the one with most ids in
  // common among the kCandidatesMax youngest; block -1 where none has `count_min` (>= 1).
  PartialMatch find_partial(Hash128 parent, std::span<const TokenId> ids, int32_t count_min) const;
  // Takes a reference on a found block (leaves the evictable set).
  void acquire(BlockId block, uint64_t user);
  // A computed block enters under its hash. If the hash is already held by another block the duplicate is not
  // inserted and that other block is returned; else `block`. REQUIRES: the caller holds the block and its
  // parent.
  BlockId insert(const Block& block);
  // Memory is far away: what insert() of a hash, or acquire() or release() of a block, will touch is on its
  // way while others are dealt with.
  void prefetch(Hash128 hash) const;
  void prefetch(BlockId block) const;
  // The last block of a request that ends, not filled; then release() keeps it. Nothing happens where the
  // cache knows all its ids already. REQUIRES: as insert(), and nobody writes to the block any more.
  void insert_tail(const Block& block);
  // Drops a request's reference; the block stays cached if it is in the cache, else it is freed.
  void release(BlockId block);
  // Frees up to `count` blocks; the number freed.
  int32_t evict(int32_t count);

  // Announced: being computed by `owner`. The first owner of a hash stays; withdraw() of another does
  // nothing. insert() does not withdraw.
  void announce(Hash128 hash, RequestId owner);
  void withdraw(Hash128 hash, RequestId owner);
  bool is_announced_by_other(Hash128 hash, RequestId self) const;

  int32_t size() const;  // blocks held: under a hash, and tails
  int32_t announced_count() const;
  // Grows whenever a lookup of full blocks may newly succeed or a wait may end: while it is unchanged, a
  // lookup that missed misses again.
  uint64_t change_count() const;
  const Counts& counts() const;
  Status verify() const;

  static constexpr int kCandidatesMax = 8;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
