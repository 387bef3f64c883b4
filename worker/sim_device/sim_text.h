#pragma once

// Words for a worker without a model: a tokenizer, a chat template and something to say. With --model they
// are that model's; without it these are built in, so that such a worker needs no file but its profile.

#include <memory>
#include <vector>

#include "common/core/status.h"
#include "worker/schedule/request.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// About 3 bytes a token of English, 1.5 of Chinese: byte-level BPE with the commonest words whole. Special:
// <|endoftext|>,
// <|im_start|>, <|im_end|>.
StatusOr<std::unique_ptr<Tokenizer>> built_in_tokenizer();
// ChatML. Every message ends in a special token, so what was encoded stays as it is when messages follow:
// prefix caching is exact.
StatusOr<std::unique_ptr<ChatTemplate>> built_in_chat_template();
// What its eos_token is.
inline constexpr std::string_view kBuiltInEos = "<|im_end|>";

// The tokens of an endless answer: position p gets [p mod size]. Not empty; no special ones.
StatusOr<std::vector<TokenId>> filler_tokens(const Tokenizer& tokenizer);

}  // namespace troupe
