#pragma once

// The block tables of requests: which KV blocks a request gets, shares, waits for and gives back. The
// scheduler decides which request runs; BlockPool and PrefixCache know what a block is. Pure; not
// thread-safe.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/status.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/prefix_cache.h"
#include "worker/kv/residency.h"
#include "worker/schedule/batch.h"
#include "worker/schedule/request.h"

namespace troupe {

// Tokens in common from which a copy of a block is cheaper than to compute them: fewer may be chance, and the
// original must stay for so long.
constexpr int32_t worth_copying(int32_t block_size) {
  return std::max(1, block_size / 4);
}

class BlockTables {
 public:
  struct Options {
    int32_t block_size = 16;
    int32_t block_count = 0;
    bool enable_prefix_caching = true;
    bool name_blocks = false;  // SchedulerConfig::Simulation's
    bool announces = true;     // a request that needs a block which another computes waits for it
  };
  explicit BlockTables(const Options& options);

  int32_t blocks_for(int32_t token_count) const;
  // Blocks that can be taken without a preemption: free ones and unreferenced cached ones.
  int32_t available_count() const { return pool_.free_count() + pool_.cached_count(); }
  const BlockPool& pool() const { return pool_; }
  const PrefixCache& cache() const { return cache_; }
  Residency& residency() { return residency_; }
  const Residency& residency() const { return residency_; }

  // Looks up how much of a waiting request is cached, and whether a running request is computing the next
  // block (request.lookup_*).
  void lookup(ScheduledRequest& request) const;
  int32_t lookup_cached_count(const ScheduledRequest& request) const;  // tokens found
  bool lookup_is_stale(const ScheduledRequest& request) const;
  // Gives a waiting request the blocks of all its known ids, the cached ones shared, if `reserve_count` more
  // stay available; sets cached_count and computed_count and announces the blocks it will compute. False:
  // nothing changed but what lookup() found.
  bool admit(ScheduledRequest& request, int32_t reserve_count);
  // While request.copy_from is set: the copy that its next step has to make; and: it was made.
  KvCopy copy_of(const ScheduledRequest& request) const;
  void finish_copy(ScheduledRequest& request);
  // Takes the blocks that the known ids need beyond its own; false: none is left, and it keeps those taken.
  bool grow(ScheduledRequest& request);
  // In a simulation, for decodes that are counted (counted_decodes.h); which block each has matters only at
  // materialize(). reserve_block() is grow() for one of them, unreserve_block() takes it back.
  bool reserve_block();
  void unreserve_block() { pool_.reserve(-1); }
  // Takes all that several steps need. REQUIRES: so many are free.
  void reserve_free_blocks(int32_t count) { pool_.reserve(count); }
  // Gives a request the blocks reserved for what it has computed.
  void materialize(ScheduledRequest& request);
  // After computed_count went up: full blocks enter the cache. Where another request's block of the same
  // content came first this request switches to it: the KV is bitwise the same, and the duplicate is freed.
  void cache_full_blocks(ScheduledRequest& request);
  // Prefetches the memory that caching its blocks, or release(), reads first.
  void fetch_ahead(const ScheduledRequest& request) const { cache_.fetch_ahead(request.path); }
  // The request has only its first `known_count` ids from now on, the last of them still to be computed, and
  // gives back blocks that are beyond them. False: it must not go on in its blocks, since the KV of that id
  // lies in one that is the cache's. REQUIRES: the other ids are not cached or announced for it.
  bool cut(ScheduledRequest& request, int32_t known_count);
  // Gives all blocks back. Cached blocks stay cached, and so does the computed part of a last block that is
  // not full. computed_count and cached_count become 0.
  void release(ScheduledRequest& request);
  // The KV of a request that has ended may be corrupt (PrefixCache::discard). Pins on it end.
  void discard(std::span<const Hash128> hashes, Hash128 salt, std::span<const TokenId> ids);
  // Pins what is cached of the prompt of a request that has ended, under request.spec.pin; what was pinned
  // under that name before is pinned no more. Where blocks of it have turned out to be corrupt nothing is.
  void pin(const ScheduledRequest& request);
  void unpin(Hash128 name);  // an unknown name is ignored
  struct Pinned {
    PrefixCache::Pin pin;
    Hash128 set;
  };
  struct Pins {
    absl::flat_hash_map<Hash128, Pinned> by_name;
    uint64_t change_count = 0;  // grows as names come and go
  };
  const Pins& pins() const { return pins_; }
  // Leading blocks of a request that are pinned: it finds them whenever it is admitted.
  int32_t pinned_count(const ScheduledRequest& request) const;
  // Names the full blocks of the known ids that have no name yet. Called once for a prompt; what is emitted
  // later cache_full_blocks() names.
  void extend_hashes(ScheduledRequest& request) const;

  // `running`: every request that holds blocks. `reserved_ahead`: blocks of counted decodes for what they
  // compute next, beyond those for what they have computed.
  Status verify(std::span<ScheduledRequest* const> running, int32_t reserved_ahead) const;

 private:
  PrefixCache::Match find_match(ScheduledRequest& request) const;
  void take_blocks(ScheduledRequest& request, const PrefixCache::Match& match, int32_t count);
  // Evicts until `count` blocks are free, as far as possible.
  void make_free(int32_t count);
  void announce_from(ScheduledRequest& request, int32_t index);
  PrefixCache::Blocks cache_blocks_of(ScheduledRequest& request, size_t end) const;
  bool keep_tail(const ScheduledRequest& request);
  Status verify_table(const ScheduledRequest& request) const;
  Status verify_announced(std::span<ScheduledRequest* const> running) const;

  Options options_;
  BlockPool pool_;
  Residency residency_;
  PrefixCache cache_;
  Pins pins_;
};

}  // namespace troupe
