#pragma once

// A request's identity for routing: the shared prefix it begins with (the set), the conversation it continues
// (the session), and a chain of hashes along its messages (the anchors). Nothing is tokenised: the chain runs
// over canonical messages (role, text, other fields), so white space and key order of the JSON do not matter.
//
//   root = H(kind, model, tenant salt, tools) → message 0 → message 1 → …
//
// The persona prefix is everything before the first user turn: a first guess, which a learned one replaces
// (shared_prefix_detector.h learns from the anchors). A plain prompt has no messages: its chain runs over
// chunks of 64 bytes, some block of a worker's cache, and longer ones the farther they are from the beginning
// (a thirty-second of that or less), and its first 1,024 bytes stand for the persona until one is learned.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/api/api.h"
#include "common/core/block_hash.h"

namespace troupe::route {

inline constexpr size_t kPromptGuessBytes = 1024;
// Length of a plain prompt's chunk that begins so many bytes after the prompt does.
constexpr size_t prompt_chunk_bytes(size_t from) {
  size_t bytes = 64;
  while (bytes < 1024 && from >= 32 * bytes) bytes *= 2;
  return bytes;
}
// Bound of a chain: deeper messages share the last link.
inline constexpr size_t kAnchorsMax = 512;

// The chain's value after some leading part of the prompt.
struct Anchor {
  Hash128 hash;
  size_t bytes = 0;    // of prompt text up to and including this link
  int64_t tokens = 0;  // the same in tokens where the caller knows (a simulator); 0: estimated from bytes
};

enum class SessionSource : uint8_t { kNone, kHeader, kPromptCacheKey, kUser, kFirstTurn };

struct PrefixKey {
  Hash128 set;                  // zero: no known prefix is shared
  Hash128 session;              // zero: no conversation can be named
  int32_t prefix_messages = 0;  // leading messages that are the persona prefix
  SessionSource session_source = SessionSource::kNone;
  size_t prefix_bytes = 0;   // text of the persona prefix, tools included
  size_t prompt_bytes = 0;   // text of the whole prompt, tools included
  size_t history_bytes = 0;  // text up to the last message, in a prompt with an answer; 0: a first turn
  // The same three in tokens, where the caller knows (a simulator); 0: estimated from bytes
  // (token_estimate.h).
  int64_t prefix_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t history_tokens = 0;
  std::vector<Anchor> anchors;  // one a message (or chunk), in order
  bool chat = false;            // anchors are messages
  int32_t guessed_anchors = 0;  // leading anchors that are the first guess
  bool refined = false;         // a learned prefix was looked up
  bool others_only = false;     // only nodes that are not ours answer such requests
  int64_t answer_tokens = 0;    // that the request asks for at most; 0: it does not say
  int64_t longer_than = 0;      // a node with a context of so many tokens has refused it for its length
  // Its node died under its answer: every gateway has such requests at the same moment.
  bool displaced = false;
};

// `session_id` is the x-session-id header's value, or empty. Session ids are scoped by model and tenant salt
// and hashed whole: "session-1" never matches "session-12", and no id is too long or too strange.
// `persona_messages`: so many leading messages of a chat are known to be the persona; 0: it is guessed.
PrefixKey make_prefix_key(const GenerateRequest& request, std::string_view session_id,
                          size_t persona_messages = 0);
// Session of an unnamed conversation whose first own message ends at this anchor.
Hash128 first_turn_session(const Hash128& anchor);

}  // namespace troupe::route
