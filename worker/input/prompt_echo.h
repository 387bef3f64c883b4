#pragma once

// The prompt as a completion with `echo` gives it back: before the answer, and with offsets where
// log-probabilities are told.

#include <cstdint>
#include <string>
#include <vector>

#include "worker/schedule/request.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

struct EchoedPrompt {
  std::string text;
  int64_t char_count = 0;
  // Where each token begins in `text`, in characters (vLLM's and OpenAI's text_offset); empty if not asked
  // for.
  std::vector<int64_t> offsets;
};

// `text`: as the client wrote it; null where it sent ids, whose text is then shown with special tokens and
// all, as if it had been written.
EchoedPrompt echo_prompt(const Tokenizer& tokenizer, const std::string* text, const std::vector<TokenId>& ids,
                         bool with_offsets);

}  // namespace troupe
