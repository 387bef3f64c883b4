#pragma once

// The prefix cache: KV blocks that outlive the request that computed them, in a radix tree (radix_tree.h). A
// block is named by the chained hash of everything up to and including it. A leaf may also be partly filled
// (the tail of a conversation): it has no hash, and is found by what is before it and its token ids. Eviction
// takes unreferenced leaves only, from their last block on, the one of the least learned value first
// (eviction_score.h). The cache also knows blocks in the making: the block that a running request computes
// next is announced, so a second request for the same prefix waits instead of computing it again.
//
// Its parts: lookup.h, insertion.h, run_holds.h (references of requests), pinning.h, idle_leaves.h and
// eviction.h, use_history.h (what eviction learns from), discard.h, announcements.h, cached_conversations.h.
// Pure; not thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/status.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/block_set.h"
#include "worker/kv/conversations.h"
#include "worker/kv/prefix_blocks.h"
#include "worker/kv/residency.h"
#include "worker/kv/types.h"

namespace troupe {

class PrefixCache {
 public:
  // `residency` (may be null) is notified of every full block that comes or goes.
  PrefixCache(BlockPool* pool, int32_t block_size, Residency* residency = nullptr);
  ~PrefixCache();

  using Match = PrefixMatch;
  using Blocks = PrefixBlocks;
  using Tail = PartlyFilledBlock;
  using Pin = PrefixPin;
  using Counts = EvictionCounts;

  // Finds the leading blocks of this chain of hashes that are cached. Does not touch recency.
  Match find(std::span<const Hash128> hashes) const;
  // How many of them have no reference: the last ones, since a reference to a block is one to all before it.
  int32_t unreferenced_count(const Match& match) const;
  // Finds a block behind `match` (full or tail, in use or not) that begins as `ids` does: the one with most
  // ids in common among the kPartialCandidatesMax youngest; block -1 where none has `count_min` (>= 1).
  PartialMatch find_partial(const Match& match, Hash128 root, std::span<const TokenId> ids,
                            int32_t count_min) const;
  enum class RunState : uint8_t {
    kIdle,
    kReferenced,
    kCorrupt  // and referenced: it is found no more, and freed with its last reference (discard())
  };
  RunState run_state(RadixNodeId run) const;

  // Takes a reference on all of the match; writes their blocks to `out`, head first.
  LockedPrefix hold(const Match& match, uint64_t user, std::vector<BlockId>& out);
  // Takes a reference on the block of a partial match, until drop(). Returns the run that the block is now.
  RadixNodeId hold_partial(const PartialMatch& partial, uint64_t user);
  void drop(RadixNodeId run);
  // Adds computed blocks under their hashes and extends the path to the last of them. Where a hash is cached
  // already its block takes the place of the request's own, which is freed: the KV is bitwise the same.
  void insert(LockedPrefix& path, const Blocks& blocks);
  // Keeps the last, partly filled block of a request that ends, behind its path. Returns false, and does not
  // keep it, if all its ids are cached already. REQUIRES: no request writes to the block any more.
  bool insert_tail(const LockedPrefix& path, const Tail& tail);
  // A request with this chain ended without a token, as its logits were no numbers: some block of it may be
  // corrupt. Its cached blocks are found no more, nor a tail behind them that `ids` (the whole chain's) has
  // at its place: from the last block on, up to one that is held, pinned, or that other blocks hang on; and
  // from the first one on that is not trusted, with all that hangs on it, held or not (discard.cc). What is
  // held is freed with its last hold.
  void discard(std::span<const Hash128> hashes, Hash128 root, std::span<const TokenId> ids);
  // Drops a request's references; the blocks it held stay cached. `drew`: it has drawn a token from them, so
  // their KV is good.
  void release(const LockedPrefix& path, bool drew = false);
  // Prefetches the memory that insert() and release() read first.
  void fetch_ahead(const LockedPrefix& path) const;
  // Marks the runs that end within the first `count` blocks of a held path as belonging to a set that is at
  // home here, or takes the mark back. Marked runs are evicted after all others, as long as they are used now
  // and then.
  void set_planned(const LockedPrefix& path, int32_t count, bool planned);
  // Frees up to `count` blocks. Returns the number freed.
  int32_t evict(int32_t count);

  // Keeps all of the match and the block of `partial` (block -1: none) until unpin(); this is not a use.
  Pin pin(const Match& match, const PartialMatch& partial);
  // Makes them evictable again, as blocks that became idle now.
  void unpin(const Pin& pin);
  int32_t pinned_count() const;                    // blocks, each counted once
  int32_t pinned_count(const Match& match) const;  // leading blocks of a match that are pinned

  // An announced block is the one that `owner` computes next. The first owner of a hash stays; withdraw() by
  // another does nothing. insert() does not withdraw.
  void announce(Hash128 hash, RequestId owner);
  void withdraw(Hash128 hash, RequestId owner);
  bool is_announced_by_other(Hash128 hash, RequestId self) const;

  // The `max_count` sessions used last, the latest first: of each the branch that was used last, without ids
  // and hashes.
  std::vector<Conversation> conversations(size_t max_count) const;
  // One session, with ids and hashes; none where nothing behind its set is cached.
  std::optional<Conversation> conversation(const Hash128& session) const;

  int32_t size() const;  // blocks held: under a hash, and tails
  int32_t announced_count() const;
  // Grows whenever a look-up of full blocks may newly succeed or a wait may end: while it is unchanged, a
  // look-up that missed misses again.
  uint64_t change_count() const;
  const Counts& counts() const;
  // Whether a path is these blocks under these hashes; without hashes: these blocks.
  bool is_path(const LockedPrefix& path, std::span<const Hash128> hashes,
               std::span<const BlockId> blocks) const;
  // Everything that is held, for verify(): every reference must have its holder. `in_cache` (empty at first)
  // gets all cached blocks.
  struct Holds {
    std::vector<LockedPrefix> paths;
    std::vector<RadixNodeId> partials;
    std::vector<Pin> pins;
  };
  Status verify(const Holds& holds, BlockSet& in_cache) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
