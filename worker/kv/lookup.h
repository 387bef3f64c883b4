#pragma once

// Look-ups in the tree of cached blocks. Their cost is one of runs, however many blocks those have. Pure.

#include <span>

#include "common/core/block_hash.h"
#include "worker/kv/prefix_blocks.h"
#include "worker/kv/radix_tree.h"

namespace troupe {

// How many blocks behind a match are compared with a request's ids.
inline constexpr int kPartialCandidatesMax = 8;

// PrefixCache::find() and find_partial().
PrefixMatch find_prefix(const RadixTree& tree, std::span<const Hash128> hashes);
PartialMatch find_partial_block(const RadixTree& tree, const PrefixMatch& match, Hash128 root,
                                std::span<const TokenId> ids, int32_t count_min);

}  // namespace troupe
