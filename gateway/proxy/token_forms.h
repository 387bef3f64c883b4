#pragma once

// POST /tokenize and /detokenize at servers of other kinds. vLLM's and SGLang's form is the API's; llama.cpp
// reads `content` and answers tokens alone, TGI reads `inputs` and answers a list. A request is sent in all
// of these forms at once, as each reads its own, and the answer is made vLLM's. An answer in no known form,
// such as an empty list for a text, is none. Pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/api/error.h"

namespace troupe {

class TokenForms {
 public:
  // `body`: the client's, in vLLM's form, as the parser took it.
  TokenForms(std::string_view path, std::string_view body);

  // The body for a server of unknown kind.
  const std::string& request_body() const { return body_; }
  // An answer (200) in vLLM's form; nullopt: the server does not speak any that is known.
  std::optional<std::string> answer(std::string_view body, int64_t max_model_len) const;
  // For the client, where no server does.
  static ApiError unknown_form(std::string_view path, std::string_view model);

 private:
  std::optional<std::string> tokens_in(std::string_view body, int64_t max_model_len) const;

  std::string body_;
  bool decodes_ = false;
  bool asks_nothing_ = false;  // an empty text has no tokens, and no tokens are no text
};

}  // namespace troupe
