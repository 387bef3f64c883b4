#pragma once

// A chat whose history is cut where it has outgrown its room (Truncation): the system's messages at its
// beginning stay, and the newest turns.

#include <cstdint>
#include <vector>

#include "common/api/api.h"
#include "worker/input/prepared_request.h"
#include "worker/input/served_model.h"

namespace troupe {

struct TruncatedChat {
  std::vector<TokenId> prompt;
  PromptPlaces places;
  // Such a prompt as the conversation's next turn will begin with, where that one has to be cut further; else
  // empty. It ends with this turn's messages.
  std::vector<TokenId> next_beginning;
};

// The messages of `request` that are left in it, which the prompt is made of. REQUIRES: request.truncation.
// Errors as encode_chat's; a prompt that does not fit with its last turn alone comes back as long as it is.
// Costs an encoding of the chat, where it does not fit one more of each message (the token cache has most of
// their words) and of what is left, and small chats by which the template's own tokens are counted.
ApiResult<TruncatedChat> truncate_chat(const ServedModel& model, GenerateRequest& request);

}  // namespace troupe
