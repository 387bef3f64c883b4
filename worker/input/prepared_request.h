#pragma once

// A request as text in leaves it: the engine's input, and how the answer is to be written.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/api/api.h"
#include "common/core/block_hash.h"
#include "worker/engine/engine.h"
#include "worker/input/prompt_echo.h"
#include "worker/text/answer/answer_parser.h"

namespace troupe {

// The places of a chat's messages in its prompt.
struct PromptPlaces {
  std::vector<int32_t> message_ends;  // ChatEncoding's; none: not a chat
  int32_t fixed_count = 0;            // messages before those that were left out of the prompt
  int32_t left_out = 0;

  // The message that a token is part of, by its place in the body. REQUIRES: a chat's
  CacheBreak break_at(int64_t token) const;
};

struct PreparedPrompt {
  EngineRequest engine;  // its first choice's; the others differ in their seed
  std::optional<EchoedPrompt> echo;
};

struct PreparedRequest : PreparedPrompt {
  GenerateRequest::Kind kind = GenerateRequest::Kind::kChat;
  bool stream = false;
  ChunkUsage usage = ChunkUsage::kNone;  // in a stream's chunks
  int32_t choice_count = 1;              // of each prompt
  int32_t best_count = 0;                // of these, by log-probability, are returned; 0: all are
  bool wants_logprobs = false;           // in the answer
  std::vector<PreparedPrompt> more;      // of a list of prompts, those after the first
  AnswerSyntax syntax;                   // of a chat's answer
  PromptPlaces places;                   // of a chat's messages
  std::vector<TokenId> next_beginning;   // TruncatedChat's, to be computed behind the answer
  // A resumed stream:
  bool begun = false;                        // something was sent: no role and no echo again
  StopReason stopped_by;                     // with `ended`
  FinishReason ended = FinishReason::kNone;  // the sent ids end the answer: nothing is to be computed
  std::string id;                            // the answer's id; empty: a new one
  std::optional<int64_t> created_s = std::nullopt;
};

// A gateway's hints (x-troupe-…): the names that residency reports
// use, and how much of the prompt belongs to the set.
struct RoutingHints {
  Hash128 set, session;         // zero: none
  bool planned = false;         // the set is at home here
  int64_t prefix_messages = 0;  // a chat's leading messages
  int64_t prefix_bytes = 0;     // a plain prompt's leading bytes
};

}  // namespace troupe
