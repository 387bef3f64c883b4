#pragma once

// KV blocks that outlive the request that computed them: a tree (radix_tree.h), in which a block is named by
// the chained hash of everything up to and including it. A leaf may also be partly filled (the tail of a
// conversation): it has no hash, and is found by what is before it and its token ids. Eviction takes
// unreferenced leaves only, from their last block on, that of the least learned value first
// (eviction_score.h). Also knows blocks in the making: the block that a running request computes next is
// announced, so that a second request for the same prefix waits instead of computing it again. Pure; not
// thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/status.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/conversations.h"
#include "worker/kv/residency.h"

namespace troupe {

class PrefixCache {
 public:
  // `residency` (may be null) is told of every full block that comes or goes.
  PrefixCache(BlockPool* pool, int32_t block_size, Residency* residency = nullptr);
  ~PrefixCache();

  // What the cache has of a prompt: its leading blocks, up to some place in a run. Holds until the cache
  // changes.
  struct Match {
    int32_t count = 0;      // blocks
    RadixNodeId run = -1;   // of the last of them
    int32_t run_count = 0;  // of its blocks; the run may have more
  };
  // Full blocks of a prompt, from its first one on; those behind its request's path are new, and computed.
  struct Blocks {
    std::span<const Hash128> hashes;  // of all that are known, so more perhaps than there are blocks
    std::span<BlockId> blocks;
    std::span<const TokenId> ids = {};  // of all the blocks, or none
    Hash128 root = {};                  // what a path of nothing hangs on (a salt)
    // Whom the request is of (its session), as far as the cache is concerned: what many users share is worth
    // more than what one came back for.
    uint64_t user = 0;
    // Whom residency is told they belong to; a zero name: nobody.
    HolderKind kind = HolderKind::kSession;
    Hash128 holder = {};
    bool planned = false;      // of a set that is at home here
    bool each_itself = false;  // instead: a session each, under its own hash
  };
  struct Tail {
    BlockId block = -1;
    std::span<const TokenId> ids;  // fewer than fill it, at least one
    Hash128 root = {};
    uint64_t user = 0;
  };
  struct Counts {
    int64_t evicted = 0;         // blocks
    int64_t evicted_shared = 0;  // of those, used by more than one user
  };

  // The leading ones of `hashes`, which are a chain, that are held. Does not touch recency.
  Match find(std::span<const Hash128> hashes) const;
  // How many of them nobody references: the last ones, for whoever holds a block holds all before it.
  int32_t unreferenced_count(const Match& match) const;
  // A block behind `match` (full or tail, in use or not) that begins as `ids` does: the one with most ids in
  // common among the kCandidatesMax youngest; block -1 where none has `count_min` (>= 1).
  PartialMatch find_partial(const Match& match, Hash128 root, std::span<const TokenId> ids,
                            int32_t count_min) const;
  bool is_referenced(RadixNodeId run) const;

  // Takes a reference on all of the match; writes their blocks to `out`, head first.
  LockedPrefix hold(const Match& match, uint64_t user, std::vector<BlockId>& out);
  // And on the block of a partial match behind it, until drop(). The run that the block now is.
  RadixNodeId hold_partial(const PartialMatch& partial, uint64_t user);
  void drop(RadixNodeId run);
  // Computed blocks enter under their hashes, and the path goes on to the last of them. Where a hash is there
  // already its block takes the place of the request's own, which is freed: the KV is bitwise the same.
  void insert(LockedPrefix& path, const Blocks& blocks);
  // The last block of a request that ends, not filled, behind its path: the cache keeps it, unless it knows
  // all its ids already (then false). REQUIRES: nobody writes to the block any more.
  bool insert_tail(const LockedPrefix& path, const Tail& tail);
  // Drops a request's references; what it held stays cached.
  void release(const LockedPrefix& path);
  // Fetches the memory that insert() and release() will look at first.
  void fetch_ahead(const LockedPrefix& path) const;
  // Of a held path, the runs that end within its first `count` blocks are those of a set that is at home
  // here, or no longer. Such are evicted after all others, for as long as they are used now and then.
  void set_planned(const LockedPrefix& path, int32_t count, bool planned);
  bool has_planned() const;
  // Frees up to `count` blocks; the number freed.
  int32_t evict(int32_t count);

  // Blocks that are kept though no request holds them.
  struct Pin {
    LockedPrefix path;
    RadixNodeId partial = -1;  // and one behind it that is not filled, or only begins as what is pinned does
  };
  // All of the match and the block of `partial` (block -1: none) stay until unpin(). That is no use of them.
  Pin pin(const Match& match, const PartialMatch& partial);
  // They may be evicted again, as blocks that became idle now.
  void unpin(const Pin& pin);
  int32_t pinned_count() const;                    // blocks, each counted once
  int32_t pinned_count(const Match& match) const;  // of them, the leading ones of a match

  // Announced: computed by `owner` next. The first owner of a hash stays; withdraw() of another does nothing.
  // insert() does not withdraw.
  void announce(Hash128 hash, RequestId owner);
  void withdraw(Hash128 hash, RequestId owner);
  bool is_announced_by_other(Hash128 hash, RequestId self) const;

  // So many sessions as were used last, the last one first: of each the branch that was used last, without
  // ids and hashes.
  std::vector<Conversation> conversations(size_t max_count) const;
  // The same of one, with them; none where nothing behind its set is cached.
  std::optional<Conversation> conversation(const Hash128& session) const;

  int32_t size() const;  // blocks held: under a hash, and tails
  int32_t announced_count() const;
  // Grows whenever a lookup of full blocks may newly succeed or a wait may end: while it is unchanged, a
  // lookup that missed misses again.
  uint64_t change_count() const;
  const Counts& counts() const;
  // Whether a path is these blocks under these hashes; without hashes: these blocks.
  bool is_path(const LockedPrefix& path, std::span<const Hash128> hashes,
               std::span<const BlockId> blocks) const;
  // All that is held: every reference has its holder. `in_cache` (empty) gets all blocks cached.
  struct Holds {
    std::vector<LockedPrefix> paths;
    std::vector<RadixNodeId> partials;
    std::vector<Pin> pins;
  };
  Status verify(const Holds& holds, BlockSet& in_cache) const;

  static constexpr int kCandidatesMax = 8;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
