#pragma once

// First stage of a request: a body's bytes → the engine's input. It parses, renders the chat template,
// encodes, and settles every default and limit. Pure functions of their arguments, so the server can run them
// on a thread of their own (a long prompt takes tens of milliseconds) and tests need none.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "common/api/api.h"
#include "common/json/json.h"
#include "common/settings/schema.h"
#include "worker/engine/engine.h"
#include "worker/input/dry_breakers.h"
#include "worker/input/prepare_answer.h"
#include "worker/input/prompt_echo.h"
#include "worker/model/config.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/token_cache.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// A special token's text in the messages, tools and template arguments of a chat: `text`, so that a user's
// "<|im_end|>" does not end the user's turn, or the token.
enum class ContentTokens : uint8_t { kText, kAllow };
inline constexpr EnumName<ContentTokens> kContentTokensNames[] = {{"text", ContentTokens::kText},
                                                                  {"allow", ContentTokens::kAllow}};

// How a prompt's special tokens are known that its template wrote (own_tokens.h).
struct OwnTokens {
  bj::object variables;                   // ServedModel::special_tokens, marked
  absl::flat_hash_set<int32_t> unmarked;  // those that no mark can stand before
};

// The served model's parts as text in needs them. The pointers outlive it.
struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  TokenCache* token_cache = nullptr;            // belongs to `tokenizer`; null: no cache
  DryBreakerCache* breaker_cache = nullptr;     // the same
  const ChatTemplate* chat_template = nullptr;  // null: the model has none, chat is refused
  const ChatTemplate* tool_template = nullptr;  // for requests with tools; null: that one, too
  // All of the model's that a request may ask for, those two among them.
  std::map<std::string, const ChatTemplate*, std::less<>> named_templates;
  bj::object special_tokens;  // bos_token, eos_token, … for the template
  ContentTokens special_tokens_in_content = ContentTokens::kText;
  std::optional<OwnTokens> own_tokens;  // none: a template's tokens are not known from those of a request
  ModelForms forms;
  ModelConfig config;
  ApiLimits api;  // limits of a body
  // OpenAI's, of a completion without max_tokens; 0: what fits.
  int32_t completion_count_default = 0;
  // Mean answer length, drawn from the seed, of requests without max_tokens; 0: as many as fit.
  int32_t answer_count_mean = 0;
  int32_t total_count_max = 0;   // prompt and answer: the lesser of max_model_len and the KV memory
  int32_t block_size = 16;       // of KV memory, in tokens
  bool keeps_prefixes = true;    // computed KV stays cached
  int64_t prompt_bytes_max = 0;  // longer texts cannot fit total_count_max; see prompt_bytes_bound()
};

// Whether a request's model is the served one, which it need not name.
inline bool is_named(const ServedModel& model, std::string_view name) {
  return name.empty() || name == model.name;
}

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
  std::vector<PreparedPrompt> more;      // of a list of prompts, those after the first
  AnswerSyntax syntax;                   // of a chat's answer
  PromptPlaces places;                   // of a chat's messages
  std::vector<TokenId> next_beginning;   // TruncatedChat's, to be computed behind the answer
  // A resumed stream:
  bool begun = false;                        // something was sent: no role and no echo again
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

// `random_seed` applies if the request has no seed. Errors: 400 (malformed, impossible, too long, refused by
// the template), 404 (another model's name).
ApiResult<PreparedRequest> prepare_request(const ServedModel& model, GenerateRequest::Kind kind,
                                           std::string_view body, uint64_t random_seed,
                                           const RoutingHints& hints = {});
// The same for a parsed request.
ApiResult<PreparedRequest> prepare_parsed(const ServedModel& model, GenerateRequest request,
                                          uint64_t random_seed, RoutingHints hints = {});

// Encodes a text, or a chat as the model's template renders it. Errors as prepare_request's.
ApiResult<std::vector<TokenId>> encode_text(const ServedModel& model, std::string_view text, bool add_special,
                                            std::string_view field = "prompt");
// The same with cuts or a boundary; the cache is the model's.
ApiResult<std::vector<TokenId>> encode_text(const ServedModel& model, std::string_view text,
                                            EncodeOptions options, std::string_view field);
struct ChatEncoding {
  bool add_generation_prompt = true;
  bool add_special = false;  // templates write BOS themselves
  bool continue_final_message = false;
  // Set, if not null, to the tokens up to the end of each message's text. A message whose text is not found
  // in the prompt as it came (templates trim, move and drop) ends where the one before it does.
  std::vector<int32_t>* message_ends = nullptr;
};
ChatEncoding encoding_of(const GenerateRequest& request);
ApiResult<std::vector<TokenId>> encode_chat(const ServedModel& model, const GenerateRequest& request,
                                            const ChatEncoding& how = {});

// Encodes one of a completion's prompts; errors name it as `field`.
ApiResult<std::vector<TokenId>> encode_prompt(const ServedModel& model, const GenerateRequest::Prompt& prompt,
                                              std::string_view field = "prompt");
// Error for an id without an embedding, naming the body's prompt field.
std::optional<ApiError> unknown_token(const ServedModel& model, std::string_view field,
                                      const std::vector<TokenId>& ids);
std::string_view prompt_field(const GenerateRequest& request);

// Length limit of a prompt: no longer text can be `token_count` tokens. Four times the longest token per
// token; the factor covers tokenizers that swallow white space around special tokens. It saves encoding a 16
// MB prompt only to refuse it.
int64_t prompt_bytes_bound(const Tokenizer& tokenizer, int64_t token_count);

}  // namespace troupe
