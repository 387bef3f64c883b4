#pragma once

// PrefixCache::conversations() and conversation(): a walk over all runs, made when a worker leaves. Nothing
// is kept for it at other times. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/core/block_hash.h"
#include "worker/kv/conversations.h"
#include "worker/kv/radix_tree.h"
#include "worker/kv/residency.h"

namespace troupe {

class CachedConversations {
 public:
  // `residency` knows whose the blocks are; null: they are no conversation's.
  CachedConversations(const RadixTree& tree, const Residency* residency, int32_t block_size)
      : tree_(tree), residency_(residency), block_size_(block_size) {}

  std::vector<Conversation> list(size_t max_count) const;
  std::optional<Conversation> find(const Hash128& session) const;

 private:
  struct Branch;
  std::optional<Branch> branch_of(RadixNodeId id) const;  // of a run that is a conversation's
  RadixNodeId last_block_behind(RadixNodeId id) const;
  Conversation describe(const Branch& branch) const;
  void collect_blocks(const Branch& branch, Conversation& out) const;

  const RadixTree& tree_;
  const Residency* residency_;
  int32_t block_size_;  // tokens
};

}  // namespace troupe
