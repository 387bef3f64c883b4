#pragma once

// A call of a tool in an answer, whole or a piece of one, and what else an answer has beside its text.

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

struct ToolCall {
  int32_t index = 0;      // among the calls of its choice
  std::string id, name;   // of a stream's pieces only the first of a call has them
  std::string arguments;  // JSON's text, or a piece of it

  bool operator==(const ToolCall&) const = default;
};

}  // namespace troupe
