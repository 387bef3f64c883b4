#pragma once

// A conversation as the prefix cache holds it: all that its next turn would find here. Another worker that
// computes these tokens has the same, so a worker that leaves hands its conversations on by their ids.

#include <cstdint>
#include <vector>

#include "common/core/block_hash.h"
#include "worker/kv/types.h"

namespace troupe {

struct Conversation {
  Hash128 session, set, salt;         // as its requests named them; set: zero where its beginning is no set's
  int32_t prefix_count = 0;           // leading tokens that are the set's
  int32_t token_count = 0;            // cached, from the first one on: more than prefix_count
  std::vector<TokenId> ids;           // of all tokens; empty in a list, and where requests have no ids
  std::vector<Hash128> block_hashes;  // of the full blocks; empty in a list
};

// How many conversations a leaving worker hands on, the ones used last, as a multiple of the requests that
// run at once: these may come back soon.
inline constexpr int64_t kConversationsPerPlace = 16;

}  // namespace troupe
