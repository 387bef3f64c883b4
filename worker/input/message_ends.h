#pragma once

// The ends of a chat's messages in its prompt: found by the messages' texts in what the template has
// rendered, so that no template has to be understood.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/api/api.h"
#include "worker/kv/types.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// The tokens up to the end of each message's text; ascending. `rendered`: the chat's text, which `prompt` are
// the tokens of. A message whose text is not found behind the one before it ends where that one does. Linear
// in the text.
std::vector<int32_t> message_ends(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                  std::string_view rendered, std::span<const TokenId> prompt);

}  // namespace troupe
