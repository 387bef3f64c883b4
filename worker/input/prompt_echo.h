#pragma once

// The prompt as a completion with `echo` returns it: before the
// answer, with offsets where log-probabilities are reported.

#include <cstdint>
#include <string>
#include <vector>

#include "worker/schedule/request.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

struct EchoedPrompt {
  std::string text;
  int64_t char_count = 0;
  // Start of each token in `text`, in characters (vLLM's and OpenAI's text_offset); empty if not requested.
  std::vector<int64_t> offsets;
};

// `text`: the client's text; null if it sent ids, which are then
// decoded as plain text, special tokens included.
EchoedPrompt echo_prompt(const Tokenizer& tokenizer, const std::string* text, const std::vector<TokenId>& ids,
                         bool with_offsets);

}  // namespace troupe
