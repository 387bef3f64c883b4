#pragma once

// A chat → its prompt's tokens, as the model's template renders it.

#include <cstdint>
#include <vector>

#include "common/api/api.h"
#include "worker/input/served_model.h"

namespace troupe {

struct ChatEncoding {
  bool add_generation_prompt = true;
  bool add_special = false;  // templates write BOS themselves
  bool continue_final_message = false;
  // Set, if not null, to the tokens up to the end of each message's text. A message whose text is not found
  // in the prompt as it came (templates trim, move and drop) ends where the one before it does.
  std::vector<int32_t>* message_ends = nullptr;
};
ChatEncoding encoding_of(const GenerateRequest& request);
// Errors as prepare_request's.
ApiResult<std::vector<TokenId>> encode_chat(const ServedModel& model, const GenerateRequest& request,
                                            const ChatEncoding& how = {});

}  // namespace troupe
