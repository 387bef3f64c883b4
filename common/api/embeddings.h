#pragma once

// POST /v1/embeddings in OpenAI's form, with vLLM's and our own fields. Parsed by the rules of api.h.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/api.h"

namespace troupe {

// How a text's hidden states become its vector: that of the last token, or the mean over all tokens.
enum class Pooling : uint8_t { kLast, kMean };
std::string_view pooling_name(Pooling pooling);

inline constexpr size_t kEmbeddingInputsMax = 2048;  // OpenAI's

struct EmbeddingsRequest {
  std::string model;                            // empty: the only one there is
  std::string cache_salt;                       // keeps KV cache apart from that of other salts
  std::vector<GenerateRequest::Prompt> inputs;  // [1, kEmbeddingInputsMax], none empty
  Pooling pooling = Pooling::kLast;
  bool normalize = true;           // to length 1
  bool base64 = false;             // little-endian float32 in base64; else numbers
  bool add_special_tokens = true;  // the tokenizer's own around a text
  std::optional<int64_t> dimensions;
  // The last so many tokens of an input are taken; -1: as many as fit. None: a longer input is an error.
  std::optional<int64_t> truncate_prompt_tokens;
};
ApiResult<EmbeddingsRequest> parse_embeddings_request(std::string_view body, const ApiLimits& limits = {});

struct EmbeddingsAnswer {
  std::string_view model;  // valid UTF-8; must outlive this
  Pooling pooling = Pooling::kLast;
  bool base64 = false;
  std::vector<std::vector<float>> vectors;  // one an input, of finite numbers
  int64_t prompt_tokens = 0, cached_tokens = 0;
};
// Numbers have as many digits as it takes to read the same float32.
std::string embeddings_json(const EmbeddingsAnswer& answer);

}  // namespace troupe
