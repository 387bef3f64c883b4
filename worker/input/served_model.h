#pragma once

// The served model's parts as text in needs them.

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
#include "worker/input/dry_breakers.h"
#include "worker/input/prepare_answer.h"
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

}  // namespace troupe
