#pragma once

// The text of a request that moderation judges before a worker gets it. Pure.

#include <string>
#include <string_view>

namespace troupe {

struct ModeratedPrompt {
  std::string text;        // empty: there is none
  bool token_ids = false;  // it has a prompt by token ids, which the service cannot judge
};

// Everything that the client sent for a prompt to have: messages of every role, tools, documents, a persona's
// user and variables, the beginning of an answer. A text that the client says an assistant wrote is its own.
// Of more than 64 KiB the newest: messages are after tools.
ModeratedPrompt whole_prompt(std::string_view body);

// The texts after the last answer that has any, of a chat; the prompt, of a completion; of other bodies their
// `input`.
std::string text_of_prompt(std::string_view body);

}  // namespace troupe
