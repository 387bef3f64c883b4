#pragma once

// Text for a worker without a model: a tokenizer, a chat template and filler. With --model they are that
// model's; otherwise these are built in, so that such a worker needs no file but its profile.

#include <memory>
#include <vector>

#include "common/core/status.h"
#include "worker/schedule/request.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// Byte-level BPE with the commonest words whole: about 3 bytes a token of English, 1.5 of Chinese. Special:
// <|endoftext|>, <|im_start|>, <|im_end|>.
StatusOr<std::unique_ptr<Tokenizer>> built_in_tokenizer();
// ChatML. Every message ends in a special token, so an encoded prefix never changes when messages follow:
// prefix caching is exact.
StatusOr<std::unique_ptr<ChatTemplate>> built_in_chat_template();
// The template's eos_token.
inline constexpr std::string_view kBuiltInEos = "<|im_end|>";

// The tokens of an endless answer: position p gets [p mod size]. Not empty; no special tokens.
StatusOr<std::vector<TokenId>> filler_tokens(const Tokenizer& tokenizer);

}  // namespace troupe
