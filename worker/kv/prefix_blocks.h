#pragma once

// The values that the prefix cache (prefix_cache.h, under shorter names) and its parts take and return.

#include <cstdint>
#include <span>

#include "common/core/block_hash.h"
#include "common/core/holder_kind.h"
#include "worker/kv/types.h"

namespace troupe {

// The leading blocks of a prompt that are cached, up to some place in a run. Valid until the cache changes.
struct PrefixMatch {
  int32_t count = 0;      // blocks
  RadixNodeId run = -1;   // of the last of them
  int32_t run_count = 0;  // of its blocks; the run may have more
};

// Full blocks of a prompt, from its first one on. Those behind the request's path are new, and computed.
struct PrefixBlocks {
  std::span<const Hash128> hashes;  // of all that are known, so more perhaps than there are blocks
  std::span<BlockId> blocks;
  std::span<const TokenId> ids = {};  // of all the blocks, or none
  Hash128 root = {};                  // what a path of nothing hangs on (a salt)
  // The user of the request (its session) as the cache distinguishes them: blocks that many users share are
  // worth more than blocks that one user came back for.
  uint64_t user = 0;
  // The holder that residency counts them to; a zero name: none.
  HolderKind kind = HolderKind::kSession;
  Hash128 holder = {};
  bool planned = false;      // of a set that is at home here
  bool each_itself = false;  // in a simulation, instead: each block is a session under its own hash
};

// The last block of a request, if it is partly filled.
struct PartlyFilledBlock {
  BlockId block = -1;
  std::span<const TokenId> ids;  // fewer than fill it, at least one
  Hash128 root = {};
  uint64_t user = 0;
};

// Blocks that are kept although no request holds them.
struct PrefixPin {
  LockedPrefix path;
  // A block behind it that is partly filled, or of which only the beginning counts.
  RadixNodeId partial = -1;
};

struct EvictionCounts {
  int64_t evicted = 0;         // blocks
  int64_t evicted_shared = 0;  // of those, used by more than one user
};

}  // namespace troupe
