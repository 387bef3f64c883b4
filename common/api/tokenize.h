#pragma once

// POST /tokenize and /detokenize in vLLM's form, for both programs: converts a text or a chat to tokens, and
// back. Parsed by the rules of api.h.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/api.h"

namespace troupe {

struct TokenizeRequest {
  // Holds kind, model (empty: the only one there is), and messages, tools, documents and
  // chat_template_kwargs, or a prompt's text (which may be empty). The other fields are unused.
  GenerateRequest source;
  bool add_special_tokens = true;     // a chat's default is false: its template writes them
  bool add_generation_prompt = true;  // for a chat
  bool return_token_strs = false;
};
// A body with `messages` is a chat, one with `prompt` a text; both, or neither, is an error. A text may also
// come in llama.cpp's form: `content`, and `add_special`, which is false by default.
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ApiLimits& limits = {});

struct DetokenizeRequest {
  std::string model;  // empty: the only one there is
  std::vector<int32_t> tokens;
};
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ApiLimits& limits = {});

struct TokenizeAnswer {
  std::vector<int32_t> tokens;
  std::vector<std::string> token_strs;  // one a token, valid UTF-8; written where `has_token_strs`
  bool has_token_strs = false;
  int64_t max_model_len = 0;
};
std::string tokenize_json(const TokenizeAnswer& answer);
// REQUIRES: valid UTF-8.
std::string detokenize_json(std::string_view prompt);

}  // namespace troupe
