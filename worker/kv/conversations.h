#pragma once

// What a prefix cache keeps of a conversation: all that its next turn would find here. Another worker that
// computes these tokens has the same, so a worker that leaves can hand on its conversations by their ids.

#include <cstdint>
#include <vector>

#include "common/core/block_hash.h"
#include "worker/kv/types.h"

namespace troupe {

struct Conversation {
  Hash128 session, set, salt;         // as its requests named them; set: zero where its beginning is no set's
  int32_t prefix_count = 0;           // leading tokens that are the set's
  int32_t token_count = 0;            // cached, from the first one on: more than prefix_count
  std::vector<TokenId> ids;           // all of them; empty in a list, and where they were never told
  std::vector<Hash128> block_hashes;  // of the full blocks; empty in a list
};

// Those that may come back soon: of so many times the requests that run at once, those used last.
inline constexpr int64_t kConversationsPerPlace = 16;

}  // namespace troupe
