#pragma once

// /v1/conversations, between workers and gateways: the conversations whose KV a worker keeps, by their token
// ids, so that another worker can compute them before their next turns arrive there.
//
//   GET  /v1/conversations            the most recently used ones, without ids
//   GET  /v1/conversations/{session}  one, with its ids: the body of the POST
//   POST /v1/conversations            computes one, after every answered request
//
//   {"object": "conversation", "model": …, "session": …, "set": …, "salt": …,
//    "prefix_tokens": …, "tokens": …, "ids": […]}
//
// The answer to POST states how many of the tokens were already cached.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/api.h"
#include "common/core/block_hash.h"

namespace troupe {

struct CachedConversation {
  std::string model;
  Hash128 session, set, salt;  // set and salt: zero for none
  int64_t prefix_tokens = 0;   // leading tokens that belong to the set
  int64_t tokens = 0;
  std::vector<int32_t> ids;  // all of them; none in a list
};

inline constexpr std::string_view kConversationsPath = "/v1/conversations";
// Returns the session in /v1/conversations/{session}; empty for any other path.
std::string_view conversation_session_of(std::string_view path);

std::string conversation_json(const CachedConversation& conversation);
std::string conversation_list_json(std::span<const CachedConversation> conversations);
std::string conversation_made_json(int64_t tokens, int64_t cached_tokens);
// Parses a POST's body. `tokens` is the number of ids.
ApiResult<CachedConversation> parse_conversation(std::string_view body, const ApiLimits& limits = {});
ApiResult<std::vector<CachedConversation>> parse_conversation_list(std::string_view body);

}  // namespace troupe
