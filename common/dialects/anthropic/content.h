#pragma once

// Messages of blocks → messages of a chat: text and thoughts stay with their message, calls become its
// tool_calls, and each result of a call becomes a message of its own, before the text that came beside it.

#include <cstddef>
#include <string_view>

#include "common/dialects/body.h"
#include "common/dialects/dialect.h"

namespace troupe::dialect::anthropic {

struct Conversation {
  bj::array messages;
  Renames renames;
  bool goes_on = false;  // the last is the beginning of the answer
};

// A text, or blocks of text; `path` names it.
Fault add_system(std::string_view path, const bj::value& system, Conversation& out);
Fault add_message(size_t index, const bj::value& message, Conversation& out);

}  // namespace troupe::dialect::anthropic
