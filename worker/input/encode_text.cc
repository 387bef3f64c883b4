#include "worker/input/encode_text.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

ApiError prompt_too_long_error(std::string_view field, int64_t bytes, const ServedModel& model) {
  auto error = ApiError::context_length(field, bytes, model.total_count_max);
  error.message = "the prompt is " + std::to_string(bytes) + " bytes long; at most " +
                  std::to_string(model.total_count_max) +
                  " tokens (prompt and answer together) fit this model";
  return error;
}

}  // namespace

std::string_view prompt_field(const GenerateRequest& request) {
  return request.kind == GenerateRequest::Kind::kChat ? "messages" : "prompt";
}

// A fine-tune's tokenizer may know tokens without an embedding in the model. Text that holds one is refused
// here: the fault is its sender's alone and must not reach a step shared with others.
std::optional<ApiError> unknown_token(const ServedModel& model, std::string_view field,
                                      const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) {
    if (id < model.config.vocab_size) continue;
    return ApiError::bad_field(field, "holds '" + std::string(model.tokenizer->token_text(id)) + "', token " +
                                          std::to_string(id) + ", which this model's vocabulary of " +
                                          std::to_string(model.config.vocab_size) + " does not have");
  }
  return std::nullopt;
}

ApiResult<std::vector<TokenId>> encode_text(const ServedModel& model, std::string_view text,
                                            EncodeOptions options, std::string_view field) {
  if (static_cast<int64_t>(text.size()) > model.prompt_bytes_max) {
    return prompt_too_long_error(field, static_cast<int64_t>(text.size()), model);
  }
  options.cache = model.token_cache;
  auto ids = model.tokenizer->encode(text, options);
  if (!ids.ok()) return ApiError::bad_field(field, to_std(ids.status().message()));
  return *std::move(ids);
}

ApiResult<std::vector<TokenId>> encode_text(const ServedModel& model, std::string_view text, bool add_special,
                                            std::string_view field) {
  EncodeOptions options;
  options.add_special = add_special;
  return encode_text(model, text, options, field);
}

ApiResult<std::vector<TokenId>> encode_prompt(const ServedModel& model, const GenerateRequest::Prompt& prompt,
                                              std::string_view field) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    return encode_text(model, *text, /*add_special=*/true, field);
  }
  const auto& ids = std::get<std::vector<int32_t>>(prompt);
  const auto vocab_size = static_cast<int32_t>(model.config.vocab_size);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return ApiError::bad_field(std::string(field) + "[" + std::to_string(i) + "]",
                                 "token id " + std::to_string(ids[i]) + " is outside the vocabulary [0, " +
                                     std::to_string(vocab_size) + ")");
    }
  }
  return ids;
}

int64_t prompt_bytes_bound(const Tokenizer& tokenizer, int64_t token_count) {
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.token_bytes(id, /*skip_special=*/false).size());
  }
  return token_count * static_cast<int64_t>(longest) * 4;
}

}  // namespace troupe
