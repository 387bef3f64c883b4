#include "worker/http/tokenize.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/api/tokenize.h"

namespace troupe {

ApiResult<std::string> answer_tokenize(const ServedModel& model, std::string_view body) {
  auto request = parse_tokenize_request(body, model.api);
  if (!request.ok()) return request.error();
  const GenerateRequest& source = request->source;
  if (!is_named(model, source.model)) return ApiError::not_found_model(source.model);
  ChatEncoding how = encoding_of(source);
  how.add_generation_prompt = request->add_generation_prompt && !how.continue_final_message;
  how.add_special = request->add_special_tokens;
  auto ids = source.kind == GenerateRequest::Kind::kChat
                 ? encode_chat(model, source, how)
                 : encode_text(model, std::get<std::string>(source.prompt), request->add_special_tokens);
  if (!ids.ok()) return ids.error();

  TokenizeAnswer answer;
  answer.tokens = std::move(*ids);
  answer.max_model_len = model.total_count_max;
  answer.has_token_strs = request->return_token_strs;
  if (answer.has_token_strs) {
    for (const TokenId id : answer.tokens) answer.token_strs.emplace_back(model.tokenizer->token_text(id));
  }
  return tokenize_json(answer);
}

ApiResult<std::string> answer_detokenize(const ServedModel& model, std::string_view body) {
  auto request = parse_detokenize_request(body, model.api);
  if (!request.ok()) return request.error();
  if (!is_named(model, request->model)) return ApiError::not_found_model(request->model);
  // A few bytes of body may name an id of a long token, so the text has the body's limit, too.
  size_t text_bytes = 0;
  for (size_t i = 0; i < request->tokens.size(); ++i) {
    const TokenId id = request->tokens[i];
    // The model's vocabulary may be padded beyond the tokenizer's, with ids that have no text.
    const int64_t vocab_size = std::max<int64_t>(model.tokenizer->vocab_size(), model.config.vocab_size);
    if (id >= vocab_size) {
      return ApiError::bad_field(
          absl::StrCat("tokens[", i, "]"),
          absl::StrCat("token id ", id, " is outside the vocabulary [0, ", vocab_size, ")"));
    }
    text_bytes += model.tokenizer->token_bytes(id, /*skip_special=*/false).size();
    if (text_bytes > model.api.body_bytes_max) {
      return ApiError::bad_field("tokens", absl::StrCat("the tokens come to more than the ",
                                                        model.api.body_bytes_max, " bytes of text allowed"));
    }
  }
  return detokenize_json(model.tokenizer->decode(request->tokens, /*skip_special=*/false));
}

}  // namespace troupe
