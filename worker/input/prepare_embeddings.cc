#include "worker/input/prepare_embeddings.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/input/encode_text.h"

namespace troupe {

namespace {

ApiError too_many_tokens() {
  return ApiError::bad_field("input", absl::StrCat("the inputs come to more than ", kEmbeddingTokensMax,
                                                   " tokens, the most of one request"));
}

// No more of a text's end than the longest prompt has bytes.
std::string_view last_part(std::string_view text, const ServedModel& model) {
  const auto most = static_cast<size_t>(model.prompt_bytes_max);
  if (text.size() <= most) return text;
  text.remove_prefix(text.size() - most);
  while (!text.empty() && (static_cast<uint8_t>(text.front()) & 0xC0) == 0x80) text.remove_prefix(1);
  return text;
}

// An input's tokens, of which there is one and at most what fits beside a token of an answer.
ApiResult<std::vector<TokenId>> encode_input(const ServedModel& model, const EmbeddingsRequest& request,
                                             const GenerateRequest::Prompt& input, std::string_view field) {
  const auto* text = std::get_if<std::string>(&input);
  auto ids = text != nullptr
                 ? encode_text(model, request.truncate_prompt_tokens ? last_part(*text, model) : *text,
                               request.add_special_tokens, field)
                 : encode_prompt(model, input, field);
  if (!ids.ok()) return ids.error();
  if (auto fault = unknown_token(model, field, *ids)) return *std::move(fault);
  if (ids->empty()) return ApiError::bad_field(field, "it comes to no token");
  const int64_t most = model.total_count_max - 1;
  const auto count = static_cast<int64_t>(ids->size());
  if (request.truncate_prompt_tokens) {
    const int64_t wanted = *request.truncate_prompt_tokens;
    const int64_t kept = wanted < 0 ? most : wanted;
    if (count > kept) ids->erase(ids->begin(), ids->end() - static_cast<ptrdiff_t>(kept));
  }
  if (static_cast<int64_t>(ids->size()) > most)
    return ApiError::context_length(field, static_cast<int64_t>(ids->size()), model.total_count_max);
  return ids;
}

EngineRequest request_of(std::vector<TokenId> ids, const EmbeddingsRequest& request) {
  EngineRequest engine;
  engine.prompt = std::move(ids);
  engine.prompt_only = true;
  engine.pooling = PoolingParams{request.pooling, request.normalize};
  if (!request.cache_salt.empty()) engine.spec.salt = hash_bytes(request.cache_salt);
  return engine;
}

}  // namespace

ApiResult<PreparedEmbeddings> prepare_embeddings(const ServedModel& model, std::string_view body) {
  auto request = parse_embeddings_request(body, model.api);
  if (!request.ok()) return request.error();
  if (!is_named(model, request->model)) return ApiError::not_found_model(request->model);
  if (request->dimensions && *request->dimensions != model.config.hidden_size) {
    return ApiError::unsupported(
        "dimensions", absl::StrCat("'dimensions' must be ", model.config.hidden_size,
                                   ", this model's, or left out: its vectors are not made to be cut."));
  }
  PreparedEmbeddings prepared;
  prepared.pooling = request->pooling;
  prepared.base64 = request->base64;
  const bool is_list = request->inputs.size() > 1;
  for (size_t i = 0; i < request->inputs.size(); ++i) {
    const std::string field = is_list ? absl::StrCat("input[", i, "]") : "input";
    auto ids = encode_input(model, *request, request->inputs[i], field);
    if (!ids.ok()) return ids.error();
    prepared.token_count += static_cast<int64_t>(ids->size());
    if (prepared.token_count > kEmbeddingTokensMax) return too_many_tokens();
    prepared.inputs.push_back(request_of(*std::move(ids), *request));
  }
  return prepared;
}

}  // namespace troupe
