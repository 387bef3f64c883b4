#pragma once

// Texts → tokens, within the model's limits.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/api/api.h"
#include "worker/input/served_model.h"

namespace troupe {

// Errors are 400 and name the field.
ApiResult<std::vector<TokenId>> encode_text(const ServedModel& model, std::string_view text, bool add_special,
                                            std::string_view field = "prompt");
// The same with cuts or a boundary; the cache is the model's.
ApiResult<std::vector<TokenId>> encode_text(const ServedModel& model, std::string_view text,
                                            EncodeOptions options, std::string_view field);

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
