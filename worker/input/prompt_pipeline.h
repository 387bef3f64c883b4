#pragma once

// First stage of a request's way: a body's bytes → what the engine computes. Parse, render the chat template,
// encode, and settle every default and limit. Pure functions of their arguments, so the server can run them
// on a thread of their own (a long prompt takes tens of milliseconds) and tests can run them without one.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/api/api.h"
#include "common/json/json.h"
#include "worker/engine/engine.h"
#include "worker/input/prompt_echo.h"
#include "worker/model/config.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/token_cache.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// What a worker knows of the model it serves. The pointers outlive it.
struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  TokenCache* token_cache = nullptr;            // of `tokenizer`; null: every text is encoded anew
  const ChatTemplate* chat_template = nullptr;  // null: the model has none, chat is refused
  bj::object special_tokens;                    // bos_token, eos_token, … for the template
  ModelConfig config;
  ApiLimits api;  // what a body may be
  // Tokens of an answer whose request names no max_tokens, on average, drawn from its seed; 0: all that fit.
  int32_t answer_count_mean = 0;
  int32_t total_count_max = 0;   // prompt and answer: the lesser of max_model_len and the KV memory
  int32_t block_size = 16;       // of KV memory, in tokens
  bool keeps_prefixes = true;    // what was computed stays cached
  int64_t prompt_bytes_max = 0;  // longer texts cannot fit total_count_max; see prompt_bytes_bound()
};

struct PreparedRequest {
  GenerateRequest::Kind kind = GenerateRequest::Kind::kChat;
  bool stream = false;
  bool include_usage = false;
  int32_t choice_count = 1;
  std::optional<EchoedPrompt> echo;
  EngineRequest engine;  // of the first choice; the others differ in their seed
  // Of a stream that is gone on with.
  bool begun = false;                        // something was told: no role and no echo again
  FinishReason ended = FinishReason::kNone;  // with what was told: nothing is to be computed
  std::string id;                            // of the answer; empty: a new one
  std::optional<int64_t> created_s = std::nullopt;
};

// What a gateway says of a request (x-troupe-…): by which names residency is told, and how much of the prompt
// is the set's.
struct RoutingHints {
  Hash128 set, session;         // zero: none
  bool planned = false;         // the set is at home here
  int64_t prefix_messages = 0;  // of a chat: leading messages
  int64_t prefix_bytes = 0;     // of a plain prompt
};

// `random_seed` is used where the request names none. Errors: 400 (malformed, impossible, too long, refused
// by the template), 404 (another model's name).
ApiResult<PreparedRequest> prepare_request(const ServedModel& model, GenerateRequest::Kind kind,
                                           std::string_view body, uint64_t random_seed,
                                           const RoutingHints& hints = {});
// The same for a parsed request.
ApiResult<PreparedRequest> prepare_parsed(const ServedModel& model, const GenerateRequest& request,
                                          uint64_t random_seed, const RoutingHints& hints = {});

// The ids of a text, or of a chat as the model's template writes it. Errors as prepare_request's.
ApiResult<std::vector<TokenId>> encode_text(const ServedModel& model, std::string_view text,
                                            bool add_special);
struct ChatEncoding {
  bool add_generation_prompt = true;
  bool add_special = false;  // templates write BOS themselves
};
ApiResult<std::vector<TokenId>> encode_chat(const ServedModel& model, const GenerateRequest& request,
                                            const ChatEncoding& how = {});

// The ids of a completion's prompt.
ApiResult<std::vector<TokenId>> encode_prompt(const ServedModel& model, const GenerateRequest& request);
// An id that the model has no embedding for, in the body's field for the prompt.
std::optional<ApiError> unknown_token(const ServedModel& model, std::string_view field,
                                      const std::vector<TokenId>& ids);
std::string_view prompt_field(const GenerateRequest& request);

// Bytes beyond which no text can be `token_count` tokens: four times the longest token each, the factor being
// for tokenizers that swallow white space around special tokens. Keeps a 16 MB prompt from being encoded only
// to be refused.
int64_t prompt_bytes_bound(const Tokenizer& tokenizer, int64_t token_count);

}  // namespace troupe
