#pragma once

// /v1/tails, between workers and gateways: the conversations whose KV a worker keeps, by their token ids, so
// that another worker computes them before their next turns come there. A tail is all of a conversation from
// its first token on.
//
//   GET  /v1/tails              those that were used last, without ids
//   GET  /v1/tails/{session}    one, with its ids: the body of
//   POST /v1/tails              which computes it behind all that is answered, and says what of it was there
//
//   {"object": "tail", "model": …, "session": …, "set": …, "salt": …, "prefix_tokens": …, "tokens": …, "ids":
//   […]}

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/api.h"
#include "common/core/block_hash.h"

namespace troupe {

struct ConversationTail {
  std::string model;
  Hash128 session, set, salt;  // set and salt: zero where there is none
  int64_t prefix_tokens = 0;   // leading ones that are the set's
  int64_t tokens = 0;
  std::vector<int32_t> ids;  // all of them, or none in a list
};

inline constexpr std::string_view kTailsPath = "/v1/tails";
// The session in /v1/tails/{session}; empty for any other path.
std::string_view tail_session_of(std::string_view path);

std::string tail_json(const ConversationTail& tail);
std::string tail_list_json(std::span<const ConversationTail> tails);
std::string tail_made_json(int64_t tokens, int64_t cached_tokens);
// Of POST. `tokens` is what there are ids.
ApiResult<ConversationTail> parse_tail(std::string_view body, const ApiLimits& limits = {});
ApiResult<std::vector<ConversationTail>> parse_tail_list(std::string_view body);

}  // namespace troupe
